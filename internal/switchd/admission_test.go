package switchd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/session"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// dial joins a job of two ranks and does not wait for the other.
func dial(t *testing.T, s *Server, h session.Hello) (*session.Session, error) {
	t.Helper()
	if h.Ranks == 0 {
		h.Ranks = 2
	}
	h.Timeout = systest.Limit
	m, err := session.Dial(t.Context(), s.Addr().String(), h)
	if err == nil {
		t.Cleanup(func() { _ = m.Close(nil) })
	}
	return m, err
}

func lost(t *testing.T, m *session.Session) error {
	t.Helper()
	systest.Receive(t, m.Lost(), "the session goes on")
	return m.Err()
}

func TestWhoIsRefused(t *testing.T) {
	s := start(t, Config{})
	first, err := dial(t, s, session.Hello{Job: 1, Epoch: 5})
	require.NoError(t, err)
	for want, h := range map[string]session.Hello{
		"rank 0 has joined already":                 {Job: 1, Epoch: 5},
		"epoch 4 of the job is over":                {Job: 1, Epoch: 4, Rank: 1},
		"rank 1 joins with 3 ranks":                 {Job: 1, Epoch: 5, Rank: 1, Ranks: 3},
		"2 ranks and MCAST_SWITCH_MODE=reproducibl": {Job: 1, Epoch: 5, Rank: 1, Reproducible: true},
	} {
		_, err := dial(t, s, h)
		require.ErrorContains(t, err, want)
	}
	require.NoError(t, first.Err())
	_, err = dial(t, s, session.Hello{Job: 1, Epoch: 6, Rank: 1})
	require.NoError(t, err)
	require.ErrorContains(t, lost(t, first), "epoch 6 of the job has begun, this is epoch 5")
}

func TestJobsOfDifferentSecretsNeverMeet(t *testing.T) {
	s := start(t, Config{
		Secrets: session.Secrets{{Name: "a", Text: "the-secret-of-the-first-tenant"},
			{Name: "b", Text: "the-secret-of-the-second-tenant"}},
	})
	one, err := dial(t, s, session.Hello{Job: 1, Secret: "the-secret-of-the-first-tenant"})
	require.NoError(t, err)
	other, err := dial(t, s, session.Hello{Job: 1, Epoch: 9, Secret: "the-secret-of-the-second-tenant"})
	require.NoError(t, err)
	require.Equal(t, 2, s.Stats().Jobs)
	require.NoError(t, one.Err())
	require.NoError(t, other.Err())
}

// TestShareOfASecret gives each of two half of the jobs and of the memory.
func TestShareOfASecret(t *testing.T) {
	s := start(t, Config{
		Jobs: 2, Workers: 1, Memory: 512 << 10, JobMemory: 512 << 10,
		Secrets: session.Secrets{{Text: "the-secret-of-the-first-tenant"}, {Text: "the-secret-of-the-second-tenant"}},
	})
	with := func(word string) func(*session.Hello) { return func(h *session.Hello) { h.Secret = word } }
	reduceScatter(t, 1, join(t, 2, at(s), with("the-secret-of-the-first-tenant")), someOps...)
	require.LessOrEqual(t, s.Stats().Memory, int64(256<<10))
	_, err := dial(t, s, session.Hello{Job: 1, Secret: "the-secret-of-the-first-tenant"})
	require.ErrorContains(t, err, "1 jobs of this secret")
	reduceScatter(t, 2, join(t, 2, at(s), with("the-secret-of-the-second-tenant")), someOps...)
}

func TestTooMany(t *testing.T) {
	s := start(t, Config{Jobs: 1})
	first, err := dial(t, s, session.Hello{Job: 1})
	require.NoError(t, err)
	_, err = dial(t, s, session.Hello{Job: 2})
	require.ErrorContains(t, err, "the switch has 1 jobs and takes no more")
	newer, err := dial(t, s, session.Hello{Job: 1, Epoch: 1})
	require.NoError(t, err)
	require.ErrorContains(t, lost(t, first), "epoch 1 of the job has begun")
	require.NoError(t, newer.Close(nil))
	systest.Eventually(t, func() bool {
		_, err := dial(t, s, session.Hello{Job: 2})
		return err == nil
	})

	s = start(t, Config{Members: 1})
	var refused error
	for rank := range 3 { // one may come while another is refused
		if _, err := dial(t, s, session.Hello{Job: 1, Rank: rank, Ranks: 3}); err != nil {
			refused = err
		}
	}
	require.Error(t, refused)
}

// TestMemory has room for one job's smallest window, and not for the window of more ranks.
func TestMemory(t *testing.T) {
	s := start(t, Config{Memory: 256 << 10, JobMemory: 256 << 10, Workers: 1})
	members := join(t, 2, at(s), nil)
	require.Equal(t, 2, members[0].Terms.Slots*members[0].Terms.Stripes)
	taken := s.Stats().Memory
	require.Equal(t, int64(4*members[0].Terms.Chunk), taken)
	reduceScatter(t, 1, members, someOps...)

	for _, ranks := range []int{1, 3} { // the memory left is too little; the memory allowed a job is too little
		_, err := tryJoin(t, ranks, at(s), nil)
		require.ErrorContains(t, err, "bytes of slot memory")
		require.ErrorContains(t, err, "allows 262144 a job")
		require.Equal(t, taken, s.Stats().Memory)
	}
	for _, m := range members {
		require.NoError(t, m.Close())
	}
	systest.Eventually(t, func() bool { return s.Stats().Memory == 0 && s.Stats().Jobs == 0 })
	reduceScatter(t, 2, join(t, 1, at(s), nil), someOps...)
}

func TestAJobThatIsNeverComplete(t *testing.T) {
	var err error
	var want string
	systest.Longer(500*time.Millisecond, func(d time.Duration) bool { // until it has come in time
		want = fmt.Sprintf("after %v only ranks [1] have joined, 1 of 3", d)
		var m *session.Session
		if m, err = dial(t, start(t, Config{JoinTimeout: d}), session.Hello{Job: 1, Ranks: 3, Rank: 1}); err == nil {
			err = lost(t, m)
		}
		return strings.Contains(err.Error(), want)
	})
	require.ErrorContains(t, err, want)
}

// TestManyRanksThatAreNeverComplete are told so in a text that fits a frame.
func TestManyRanksThatAreNeverComplete(t *testing.T) {
	s := start(t, Config{Workers: 1})
	child, err := dial(t, s, session.Hello{Job: 1, Ranks: collective.MaxRanks, Child: true})
	require.NoError(t, err)
	ranks := make([]int, 10_000)
	for half := range 2 {
		for i := range ranks {
			ranks[i] = half*len(ranks) + i
		}
		require.NoError(t, child.ReportBelow(session.Below{Ranks: ranks, Chunk: 1024, Room: 1 << 20}))
	}
	var j *job
	systest.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, j = range s.jobs {
			j.mu.Lock()
			defer j.mu.Unlock()
			return len(j.presentRanks()) == 2*len(ranks)
		}
		return false
	})
	j.joinTimedOut()
	require.ErrorContains(t, lost(t, child), "62 63] and 19936 more have joined, 20000 of 32768")
}

func TestChildWithoutParent(t *testing.T) {
	closed := systest.ReservePort(t).String()
	s := start(t, Config{Parent: closed})
	_, err := dial(t, s, session.Hello{Job: 1})
	require.ErrorContains(t, err, "parent switch")
	require.ErrorContains(t, err, closed)
}

func TestChildAndParentOfDifferentSecrets(t *testing.T) {
	root := start(t, Config{Secrets: secrets("a-secret-of-somebody-else")})
	s := start(t, Config{Parent: root.Addr().String(), Secrets: secrets(secret)})
	_, err := dial(t, s, session.Hello{Job: 1, Secret: secret})
	require.ErrorContains(t, err, "parent switch")
	require.ErrorContains(t, err, "does not know this secret")
}

func TestDrain(t *testing.T) {
	s := start(t, Config{})
	members := join(t, 2, at(s), nil)
	reduceScatter(t, 1, members, someOps...)
	waiting, err := dial(t, s, session.Hello{Job: 7})
	require.NoError(t, err)

	ctx, cancel := context.WithCancelCause(t.Context())
	var drained errgroup.Group
	drained.Go(func() error { return s.Drain(ctx) })
	for _, m := range []*session.Session{members[0].Session, members[1].Session, waiting} {
		require.ErrorIs(t, lost(t, m), session.ErrDraining)
	}
	_, err = dial(t, s, session.Hello{Job: 8})
	require.ErrorContains(t, err, "drains")
	health := httptest.NewRecorder()
	s.Handler().ServeHTTP(health, httptest.NewRequest("GET", "/healthz", nil))
	require.Equal(t, 503, health.Code)
	cancel(errors.New("no patience"))
	require.ErrorContains(t, drained.Wait(), "2 jobs have not left the switch: no patience")

	drained = errgroup.Group{}
	drained.Go(func() error { return s.Drain(t.Context()) })
	for _, m := range []*session.Session{members[0].Session, members[1].Session, waiting} {
		require.NoError(t, m.Close(nil))
	}
	require.NoError(t, drained.Wait())
	require.Zero(t, s.Stats().Memory)
}

// TestRestart ends a switch under its members, and starts another in its place.
func TestRestart(t *testing.T) {
	addr := systest.ReservePort(t).String()
	s := start(t, Config{Bind: addr})
	members := join(t, 2, at(s), nil)
	reduceScatter(t, 1, members, someOps...)
	require.NoError(t, s.Close())
	for _, m := range members {
		require.ErrorContains(t, lost(t, m.Session), "the switch ends")
	}
	s = start(t, Config{Bind: addr})
	reduceScatter(t, 2, join(t, 2, at(s), func(h *session.Hello) { h.Epoch = 2 }), someOps...)
}

func TestRanksThatCallDifferentThings(t *testing.T) {
	for _, tree := range []bool{false, true} {
		s := start(t, Config{})
		if tree {
			s = start(t, Config{Parent: s.Addr().String()})
		}
		members := join(t, 2, at(s), func(h *session.Hello) { h.InGroup = new(4 + 5*h.Rank) })
		var all errgroup.Group
		ctx := systest.Context(t)
		errs := make([]error, 2)
		for r, m := range members {
			all.Go(func() error {
				o := collective.Op{Count: 1000, Type: reduce.F32, Reduction: []reduce.Op{reduce.Sum, reduce.Max}[r]}
				errs[r] = m.ReduceScatter(ctx, o, make([]byte, 8000), make([]byte, 4000))
				return nil
			})
		}
		require.NoError(t, all.Wait())
		for _, err := range errs {
			var e *session.Error
			require.ErrorAs(t, err, &e)
			require.True(t, e.Mismatch)
			require.Contains(t, e.Text, "ranks disagree")
			require.Contains(t, e.Text, "sum of f32")
			require.Contains(t, e.Text, "max of f32")
			require.NotNil(t, e.Between)
			require.ElementsMatch(t, []int{4, 9}, e.Between.Ranks[:])
			if !tree {
				require.Contains(t, e.Text, "rank 4 ")
				require.Contains(t, e.Text, "rank 9 ")
			}
		}
	}
}

func TestBadConfig(t *testing.T) {
	for want, c := range map[string]Config{
		"-1 workers":      {Workers: -1},
		"and 2 for a job": {Memory: 1, JobMemory: 2},
		"a rate of -1":    {Rate: -1},
		"ports 0 to 7":    {LastPort: 7},
		`parent "here"`:   {Parent: "here"},
		"missing port":    {Bind: "127.0.0.1"},
		"-5 jobs, 4096":   {Jobs: -5},
	} {
		_, err := Start(c)
		require.ErrorContains(t, err, want)
	}
}

// TestPorts has room for one member's socket and none for another's.
func TestPorts(t *testing.T) {
	for range 100 {
		probe, err := net.ListenPacket("udp4", "127.0.0.1:0")
		require.NoError(t, err)
		port := uint16(probe.LocalAddr().(*net.UDPAddr).Port)
		require.NoError(t, probe.Close())
		s := start(t, Config{Workers: 1, FirstPort: port, LastPort: port})
		if _, err = dial(t, s, session.Hello{Job: rand.Uint64(), Ranks: 1}); err != nil {
			continue // somebody took the port meanwhile
		}
		_, err = dial(t, s, session.Hello{Job: rand.Uint64(), Ranks: 1})
		require.ErrorContains(t, err, "all in use")
		return
	}
	require.Fail(t, "no port lasts")
}

// TestResultsLeaveElsewhere: the switch says so of each member to which they do.
func TestResultsLeaveElsewhere(t *testing.T) {
	var log bytes.Buffer
	s := start(t, Config{
		Log:       slog.New(slog.NewTextHandler(&log, nil)),
		Elsewhere: func(local, member netip.Addr) string { return fmt.Sprintf("from %v to %v by another", local, member) },
	})
	m, err := dial(t, s, session.Hello{Job: 1, Ranks: 2, Rank: 1, InGroup: new(6)})
	require.NoError(t, err)
	require.NoError(t, m.Close(nil))
	require.NoError(t, s.Close())
	require.Contains(t, log.String(), `level=WARN msg="results leave by another interface than members send to;`)
	require.Contains(t, log.String(), `member="rank 6" why="from 127.0.0.1 to 127.0.0.1 by another"`)
}
