package bootstrap

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRefusalsHaveTypes: what rank 0 of a rendezvous answers, and who is lost there, is no bare text.
func TestRefusalsHaveTypes(t *testing.T) {
	require.Equal(t, [2]int{0, -1}, otherJob.Between.Ranks)
	require.Equal(t, "another job", otherJob.Between.What[0])

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
