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
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

// TestMismatchOf: who disagrees about what, of what has fields and of what has none.
func TestMismatchOf(t *testing.T) {
	want := collective.Disagreement{Ranks: [2]int{2, 11}, What: [2]string{"broadcast (root 3, 8 bytes)", "a barrier"}}
	d, ok := MismatchOf(fmt.Errorf("rank 0 of 9: %w", disagreement(1, &want, "operation 7")))
	require.True(t, ok)
	require.Equal(t, want, d)
	d, ok = MismatchOf(&Fault{Kind: Mismatch, Rank: 1, Text: "other words"})
	require.True(t, ok)
	require.Equal(t, collective.Disagreement{Ranks: [2]int{1, -1}, What: [2]string{"other words", ""}}, d)
	d, ok = MismatchOf(team.DifferentSettings("MCAST_PORT=5000 MCAST_CHAINS=2 MCAST_CHUNK=1000", "MCAST_PORT=5000 MCAST_CHAINS=4", 6))
	require.True(t, ok)
	require.Equal(t, collective.Disagreement{
		Ranks: [2]int{0, 6}, What: [2]string{"MCAST_CHAINS=2 MCAST_CHUNK=1000", "MCAST_CHAINS=4 MCAST_CHUNK=0"},
	}, d)
	_, ok = MismatchOf(&Fault{Kind: Dead, Rank: 1, Text: "rank 1 called x, rank 2 y"})
	require.False(t, ok)
}

// TestPathOf: PathOf names the two ranks of the broken path, even if the text names others.
func TestPathOf(t *testing.T) {
	g := &Group{agreed: &team.Plan{Rank: 3, Addrs: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:1")}}}
	from, to, ok := PathOf(fmt.Errorf("rank 7 of 20 cannot join: %w",
		g.cannotConnect(&absentError{12, fmt.Errorf("cannot be reached at 10.0.0.1:1: %w", &TimeoutError{"MCAST_TIMEOUT", time.Second})})))
	require.True(t, ok)
	require.Equal(t, [2]int{3, 12}, [2]int{from, to})
	narrow := &probed{from: 5, to: 12}
	for i, err := range []error{
		g.stalled(12, &sys.StallError{For: time.Second}),
		narrow.fault("too narrow"),
	} {
		from, to, ok := PathOf(err)
		require.True(t, ok)
		require.Equal(t, [2]int{3 + 2*i, 12}, [2]int{from, to}, err)
	}
	_, _, ok = PathOf(&Fault{Kind: Dead, Rank: 12, From: 3})
	require.False(t, ok)
}

// TestRefusalsHaveTypes: what rank 0 of a rendezvous answers, and who is lost there, is no bare text.
func TestRefusalsHaveTypes(t *testing.T) {
	between, ok := MismatchOf(fmt.Errorf("x: %w", otherJob))
	require.True(t, ok)
	require.Equal(t, [2]int{0, -1}, between.Ranks)
	require.Equal(t, "another job", between.What[0])

	ln := listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	host := make(chan error, 1)
	go func() {
		_, err := Meeting{}.RendezvousOn(ctx, ln, 3, nil)
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
