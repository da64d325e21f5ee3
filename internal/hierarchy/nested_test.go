package hierarchy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/team/teamtest"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// undriven is a rank of a group with nodes. Nobody drives its lanes, so posted operations stay in them.
func undriven(t *testing.T, a *team.Plan) *nested {
	t.Helper()
	return New(Config{
		Plan: a, Column: undrivenLevel(t, &a.Column), Node: undrivenLevel(t, &a.Node), Posted: func(overlap.Class) {},
	}).composer.(*nested)
}

func undrivenLevel(t *testing.T, m *team.Members) *Level {
	t.Helper()
	gather := engine.NewGather(engine.GatherConfig{
		Core: multicast.Config{Rank: m.Own, Size: m.Size(), Chunk: 4096, Window: 16, Chains: 1, Subgroups: 1},
	})
	l := &Level{Members: m, Gather: gather, Reduce: engine.NewReduce(engine.ReduceConfig{Rank: m.Own, Size: m.Size()})}
	for i := range l.Lanes {
		l.Lanes[i] = overlap.NewLane(make(idle, 1))
		t.Cleanup(l.Lanes[i].Close)
	}
	return l
}

// idle is a worker that has nothing to do.
type idle chan struct{}

func (i idle) Work() bool    { return false }
func (i idle) InFlight() int { return 0 }

func (i idle) Sleep(most time.Duration) {
	select {
	case <-i:
	case <-time.After(most): //nolint:forbidigo // a worker's Sleep ends by itself
	}
}

func (i idle) Wake() {
	select {
	case i <- struct{}{}:
	default:
	}
}

// inFlight returns what the lanes of both classes hold.
func (n *nested) inFlight() (gather, reduce steps) {
	of := func(c overlap.Class) steps { return steps{n.column.InFlight(c), n.node.InFlight(c)} }
	return of(overlap.Gather), of(overlap.Reduce)
}

// TestAllreduceIsPostedWhollyOnNodes: it is of hundreds of steps here, of more on some hosts than on others. All of
// them are posted on each, or none, and there is room for some calls of any size.
func TestAllreduceIsPostedWhollyOnNodes(t *testing.T) {
	for _, hosts := range [][]int{append(slices.Repeat([]int{8}, 64), 7), slices.Repeat([]int{2}, 600),
		append(slices.Repeat([]int{20}, 50), 1)} {
		last := -hosts[len(hosts)-1]
		for _, r := range hosts {
			last += r
		}
		for _, rank := range []int{0, hosts[0] - 1, last} {
			t.Run(fmt.Sprintf("%d hosts, rank %d", len(hosts), rank), func(t *testing.T) {
				g := undriven(t, teamtest.Plan(t, rank, hosts...))
				buf := make([]byte, 4*1_000_003) // a segment, and a few elements
				gathers, reduces := g.stepsOfAllreduce(newAllreduce(g.plan, buf, buf, 4).segments, 4)
				calls := 0
				for {
					require.Less(t, calls, 1000)
					_, err := g.Allreduce(buf, buf, collective.Op{Type: reduce.I32, Reduction: reduce.Sum})
					if err != nil {
						require.ErrorIs(t, err, engine.ErrBusy)
						break
					}
					calls++
					gathering, reducing := g.inFlight()
					require.Equal(t, gathers.times(calls), gathering)
					require.Equal(t, reduces.times(calls), reducing)
					require.Empty(t, g.later)
				}
				require.GreaterOrEqual(t, calls, leastCalls)
			})
		}
	}
}

// TestStepsArePosted: as many as compose was told, and not more than the size of segments reckons with.
func TestStepsArePosted(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		var hosts []int
		for range 2 + random.IntN(4) {
			hosts = append(hosts, 1+random.IntN(5))
		}
		hosts[0] = max(2, hosts[0])
		n := []int{0, 4, 4096, team.SegmentBytes, 4 * team.SegmentBytes, 1_000_000}[random.IntN(6)]
		for rank := range teamtest.Plan(t, 0, hosts...).Size {
			t.Run(fmt.Sprintf("%v, rank %d, %d bytes", hosts, rank, n), func(t *testing.T) {
				a := teamtest.Plan(t, rank, hosts...)
				g := undriven(t, a)
				send, recv := make([]byte, a.Size*n), make([]byte, n)
				_, err := g.ReduceScatter(send, recv, collective.Op{Type: reduce.I32, Reduction: reduce.Sum})
				require.NoError(t, err)
				segments := len(a.ReduceSegment(false).Cut(n, 4))
				_, got := g.inFlight()
				require.Equal(t, g.reductions(segments), got)
				require.LessOrEqual(t, max(got.across, got.within), segments*a.ReduceSteps())
				_, err = g.Allgather(recv, send[rank*n:][:n], send)
				require.NoError(t, err)
				segments = len(a.GatherSegment(false).Cut(n, 1))
				got, _ = g.inFlight()
				require.Equal(t, g.gatherings(segments), got)
				require.LessOrEqual(t, max(got.across, got.within), 1+segments*a.GatherSteps())
			})
		}
	}
}

// sent are streams to one rank, which keep what goes in.
type sent struct {
	fabric.Streams
	bytes []byte
}

func (s *sent) Send(_ int, b []byte) int {
	s.bytes = append(s.bytes, b...)
	return len(b)
}
func (*sent) Peek(int, int) []byte { return nil }
func (*sent) Err(int) error        { return nil }
func (*sent) Wake()                {}

// TestResultsAreForwardedBehindLaterSums: within an Allreduce and within a Reduce-Scatter. What a lane has first waits
// for the network otherwise, and so does all behind it.
func TestResultsAreForwardedBehindLaterSums(t *testing.T) {
	for name, start := range map[string]func(o *Operations) error{
		"reduce-scatter": func(o *Operations) error {
			_, err := o.ReduceScatter(make([]byte, 3*4*team.SegmentBytes), make([]byte, 4*team.SegmentBytes),
				collective.Op{Type: reduce.I32, Reduction: reduce.Sum})
			return err
		},
		"allreduce": func(o *Operations) error {
			buf := make([]byte, 3*4*team.AllreduceBytes)
			_, err := o.Allreduce(buf, buf, collective.Op{Type: reduce.I32, Reduction: reduce.Sum})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := undriven(t, teamtest.Plan(t, 1, 2, 1)) // in no column, where all but a result is in one
			require.NoError(t, start(g.Operations))
			var out sent
			g.node.Reduce.Begin(0, nil, &out)
			for g.node.Reduce.Work() {
			}
			order := ""
			for at := 0; at < len(out.bytes); {
				var h wire.Stream
				require.NoError(t, h.Get(out.bytes[at:]))
				if at += wire.StreamAlign; h.Of == 0 {
					order += "s"
					at += int(h.Bytes)
				} else {
					order += "r"
				}
			}
			require.Equal(t, "sssrsrrr", order, "of four segments: sums, and results")
		})
	}
}

// TestPartialSums gives each slot out again only behind what reads it.
func TestPartialSums(t *testing.T) {
	var p partialSums
	reads := make([]*engine.Work, sumSlots)
	for i := range 3 * sumSlots {
		s := p.take(4, 25)
		require.Len(t, s.rows(0, 4), 100)
		require.Len(t, s.rows(1, 3), 50)
		require.Same(t, &s.bytes[25], &s.rows(1, 2)[0])
		require.True(t, s.free == reads[i%sumSlots])
		reads[i%sumSlots] = new(engine.Work)
		s.readBy(reads[i%sumSlots])
	}
	require.Len(t, p.take(1, 50).bytes, 50)
	large := p.take(2, 100)
	require.Len(t, large.bytes, 200)
	require.Nil(t, large.free, "new memory waits for nobody")
}
