package group

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

// TestMismatchOf takes the texts from whoever writes them.
func TestMismatchOf(t *testing.T) {
	mine, theirs := newCall(reduce.F32, reduce.Sum, 0, 8), newCall(reduce.I32, reduce.Max, 0, 64)
	for _, c := range []struct {
		err   error
		ranks [2]int
		what  [2]string
	}{
		{
			&collective.MismatchError{Party: "rank", About: "operation 7", Who: [2]int{2, 11}, What: [2]string{"broadcast (root 3, 8 bytes)", "a barrier"}},
			[2]int{2, 11}, [2]string{"broadcast (root 3, 8 bytes)", "a barrier"},
		},
		{
			&collective.MismatchError{Party: "rank", Who: [2]int{1, 0}, What: [2]string{"reduce to rank 3 number 5 (sum of f32)", "reduce to rank 2 number 5 (sum of f32)"}},
			[2]int{1, 0}, [2]string{"reduce to rank 3 number 5 (sum of f32)", "reduce to rank 2 number 5 (sum of f32)"},
		},
		{
			fmt.Errorf("ranks disagree: rank %d called %v, rank %d %v", 4, &mine, 5, &theirs),
			[2]int{4, 5}, [2]string{mine.String(), theirs.String()},
		},
	} {
		ranks, what, ok := MismatchOf(fmt.Errorf("rank 0 of 9: %w", &Fault{Kind: Mismatch, Rank: 1, Text: c.err.Error()}))
		require.True(t, ok, c.err)
		require.Equal(t, c.ranks, ranks, c.err)
		require.Equal(t, c.what, what, c.err)
	}
	ranks, what, ok := MismatchOf(&Fault{Kind: Mismatch, Rank: 1, Text: "other words"})
	require.True(t, ok)
	require.Equal(t, [2]int{1, -1}, ranks)
	require.Equal(t, [2]string{"other words", ""}, what)
	ranks, what, ok = MismatchOf(difference("MCAST_PORT=5000 MCAST_CHAINS=2 MCAST_CHUNK=1000", "MCAST_PORT=5000 MCAST_CHAINS=4", 6))
	require.True(t, ok)
	require.Equal(t, [2]int{0, 6}, ranks)
	require.Equal(t, [2]string{"MCAST_CHAINS=2 MCAST_CHUNK=1000", "MCAST_CHAINS=4 MCAST_CHUNK=0"}, what)
	_, _, ok = MismatchOf(&Fault{Kind: Dead, Rank: 1, Text: "rank 1 called x, rank 2 y"})
	require.False(t, ok)
}

// TestPathOf takes the texts from whoever writes them.
func TestPathOf(t *testing.T) {
	g := &Group{agreed: &agreement{rank: 3, addrs: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:1")}}}
	narrow := (&probed{full: 9000, packet: 1500, from: 3, to: 12}).narrow("eth0", 9000)
	for _, text := range []string{
		g.stalled(12, &sys.StallError{For: time.Second}),
		narrow,
		"MCAST_CHUNK=8000 is too large: " + narrow,
		g.cannotConnect(&absentError{12, fmt.Errorf("cannot be reached at 10.0.0.1:1: %w", &TimeoutError{"MCAST_TIMEOUT", time.Second})}).Text,
	} {
		from, to, ok := PathOf(fmt.Errorf("rank 7 of 20 cannot join: %w", &Fault{Kind: Path, Rank: 12, Text: text}))
		require.True(t, ok, text)
		require.Equal(t, [2]int{3, 12}, [2]int{from, to}, text)
	}
	_, _, ok := PathOf(&Fault{Kind: Dead, Rank: 12, Text: narrow})
	require.False(t, ok)
}

// TestRefusalsHaveTypes: what rank 0 of a rendezvous answers, and who is lost there, is no bare text.
func TestRefusalsHaveTypes(t *testing.T) {
	ranks, what, ok := MismatchOf(fmt.Errorf("x: %w", otherJob))
	require.True(t, ok)
	require.Equal(t, [2]int{0, -1}, ranks)
	require.Equal(t, "another job", what[0])

	ln := listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	host := make(chan error, 1)
	go func() {
		_, err := RendezvousOn(ctx, ln, 3, nil)
		host <- err
	}()
	first, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer first.Close()
	// The order in which rank 0 hears of two connections is not theirs: one of them is refused.
	second, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer second.Close()
	answers := make(chan error, 2)
	for _, conn := range []net.Conn{first, second} {
		_, err = conn.Write(putGreeting(greeting{0, 3, 1, nil}))
		require.NoError(t, err)
		go func() {
			_, err := readAnswer(conn, 3)
			answers <- err
		}()
	}
	rank, ok := RankOf(<-answers)
	require.True(t, ok)
	require.Equal(t, 1, rank)
	cancel()
	require.Error(t, <-host)
}

// TestRankIsLostAtTheRendezvous: its connection breaks before the answer.
func TestRankIsLostAtTheRendezvous(t *testing.T) {
	ours, theirs := net.Pipe()
	require.NoError(t, theirs.Close())
	_, err := answerAll(t.Context(), []net.Conn{nil, nil, ours}, [][]byte{nil, nil, nil}, nil)
	rank, ok := RankOf(err)
	require.True(t, ok)
	require.Equal(t, 2, rank)
	require.ErrorContains(t, err, "rank 2 of 3 came and was lost")
}
