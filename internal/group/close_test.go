package group

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// patient is of ranks that are told of what happens long before MCAST_TIMEOUT is over.
func patient(fabric string) func(*config.Settings) {
	return func(s *config.Settings) { s.Fabric, s.Timeout = fabric, time.Hour }
}

// faultsOf starts an operation on all ranks but one, then has that one do something, and returns
// with what the operation ends on the others.
func faultsOf(t *testing.T, g []*Group, but int, start func(*Group) (*Work, error), do func()) []*Fault {
	t.Helper()
	works, errs := make([]*Work, len(g)), make([]error, len(g))
	for r := range g {
		if r != but {
			works[r], errs[r] = start(g[r])
		}
	}
	do()
	var faults []*Fault
	for r, err := range errs {
		if r == but {
			continue
		}
		if err == nil { // not refused at once because the group had failed already
			err = works[r].Wait(systest.Context(t))
		}
		faults = append(faults, asFault(t, err))
	}
	return faults
}

var starts = map[string]func(*Group) (*Work, error){
	"allgather": func(g *Group) (*Work, error) { return g.StartAllgather(make([]byte, 8), make([]byte, 32)) },
	"barrier":   (*Group).StartBarrier,
	"reduce-scatter": func(g *Group) (*Work, error) {
		return g.StartReduceScatter(make([]byte, 32), make([]byte, 8), reduce.F32, reduce.Sum, 0)
	},
	"allreduce": func(g *Group) (*Work, error) {
		return g.StartAllreduce(make([]byte, 1<<20), make([]byte, 1<<20), reduce.F32, reduce.Sum, 0)
	},
}

// TestCloseWhileOthersWait: a rank that waits for one that has closed the group is told so, at once.
func TestCloseWhileOthersWait(t *testing.T) {
	for _, fabric := range []string{"shm", "udp"} {
		for name, start := range starts {
			for _, late := range []bool{false, true} { // the operation is posted after the close
				t.Run(fmt.Sprintf("%s/%s/late=%v", fabric, name, late), func(t *testing.T) {
					g := assemble(t, 4, patient(fabric))
					each(t, 4, func(r int) error { return g[r].Barrier() })
					closed := make(chan error, 1)
					leave := func() { go func() { closed <- g[2].Close() }() }
					if late {
						leave()
						systest.Eventually(t, func() bool { return g[1].leaving.departed[0].Load() != nil })
						leave = func() {}
					}
					for _, f := range faultsOf(t, g, 2, start, leave) {
						assert.Equal(t, Left, f.Kind)
						assert.Equal(t, 2, f.Rank)
						assert.Regexp(t,
							`^rank 2 has left \(its script ended or destroyed the group\) while an? .* was in flight on rank [013]$`,
							f.Error())
					}
					require.NoError(t, <-closed)
					each(t, 4, func(r int) error { return g[r].Close() })
				})
			}
		}
	}
}

// TestAbort: all others get the reason, in any operation, and the rank that aborts does not wait.
func TestAbort(t *testing.T) {
	for _, fabric := range []string{"shm", "udp"} {
		t.Run(fabric, func(t *testing.T) {
			g := assemble(t, 4, patient(fabric))
			w, err := g[2].StartBarrier()
			require.NoError(t, err)
			faults := faultsOf(t, g, 2, starts["reduce-scatter"],
				func() { require.NoError(t, g[2].Abort("its script ended with ValueError: x")) })
			for _, f := range append(faults, asFault(t, w.Wait(context.Background()))) {
				assert.Equal(t, Aborted, f.Kind)
				assert.Equal(t, "rank 2 aborted: its script ended with ValueError: x", f.Error())
			}
			each(t, 4, func(r int) error { return g[r].Close() })
		})
	}
}

func asFault(t *testing.T, err error) (f *Fault) {
	t.Helper()
	require.ErrorAs(t, err, &f)
	return f
}

// TestAbortEndsAClose has a rank abort that waits in Close for the others.
func TestAbortEndsAClose(t *testing.T) {
	g := assemble(t, 2, patient("shm"))
	closed := make(chan error, 1)
	go func() { closed <- g[0].Close() }()
	systest.Eventually(t, func() bool { return g[1].leaving.departed[0].Load() != nil })
	require.NoError(t, g[0].Abort("enough"))
	require.NoError(t, <-closed)
	assert.Equal(t, Aborted, asFault(t, g[1].Barrier()).Kind)
	require.NoError(t, g[1].Close())
}

// TestLateClose has each rank in turn come to Close later than MCAST_TIMEOUT: the others wait for
// it, with a warning that names it, and repair its missing chunks. All groups wait at the same
// time.
func TestLateClose(t *testing.T) {
	waits(t)
	var all sync.WaitGroup
	for _, fabric := range []string{"shm", "udp"} {
		for late := range 3 {
			g := assemble(t, 3, func(s *config.Settings) {
				s.Fabric, s.Timeout = fabric, short
				if fabric == "udp" {
					s.Loss = 0.3
				}
			})
			said := new(log)
			for _, r := range g {
				r.log = slog.New(slog.NewTextHandler(said, nil))
			}
			all.Go(func() {
				each(t, 3, func(r int) error {
					recv := make([]byte, 30<<10)
					if err := g[r].Allgather(recv[r*10<<10:][:10<<10], recv); err != nil {
						return err
					}
					if r == late {
						systest.Pause(skew)
					}
					return g[r].Close()
				})
				assert.Contains(t, said.String(), fmt.Sprintf("missing=\"rank %d\" waited=%v", late, short), fabric)
			})
		}
	}
	all.Wait()
}

// log is a buffer that many goroutines write to.
type log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A Close that waits ends when a rank dies that has not closed.
func TestCloseEndsWhenARankDies(t *testing.T) {
	g := assemble(t, 3, patient("udp"))
	closed := make(chan error, 2)
	for _, r := range g[:2] {
		go func() { closed <- r.Close() }()
	}
	systest.Eventually(t, func() bool { return len(g[2].mesh.Staying()) == 1 })
	g[2].mesh.Close() // as the end of its process does
	require.NoError(t, <-closed)
	require.NoError(t, <-closed)
	require.NoError(t, g[2].Close())
}

func TestCloseSaysThatOthersStay(t *testing.T) {
	g := assemble(t, 2, nil)
	err := g[0].CloseWithin(10 * time.Millisecond)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "not all ranks closed the group within 10ms")
	assert.Equal(t, "rank 0 has left (its script ended or destroyed the group) before all ranks did",
		asFault(t, g[1].Barrier()).Error())
	require.NoError(t, g[1].Close())
}

func TestCloseEndsWhatIsInFlight(t *testing.T) {
	g := assemble(t, 2, patient("udp"))
	w, err := g[0].StartReduceScatter(make([]byte, 64), make([]byte, 32), reduce.F32, reduce.Sum, 0)
	require.NoError(t, err)
	v, err := g[1].StartBarrier()
	require.NoError(t, err)
	require.NoError(t, g[0].Close())
	assert.Equal(t, Closed, asFault(t, w.Wait(context.Background())).Kind)
	_, err = g[0].StartBarrier()
	assert.Equal(t, Closed, asFault(t, err).Kind)
	_, err = g[0].StartReduceScatter(make([]byte, 64), make([]byte, 32), reduce.F32, reduce.Sum, 0)
	assert.Equal(t, Closed, asFault(t, err).Kind)
	assert.Equal(t, "rank 0 has left (its script ended or destroyed the group) with operations of its own in flight",
		asFault(t, v.Wait(context.Background())).Error())
	require.NoError(t, g[1].Close())
}
