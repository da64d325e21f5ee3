package bootstrap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// meet runs a rendezvous of the given ranks of a group of size and returns
// what each got. The others never come.
func meet(
	ctx context.Context, t *testing.T, ln net.Listener, size int, ranks ...int,
) (map[int][][]byte, map[int]error) {
	t.Helper()
	type result struct {
		rank  int
		blobs [][]byte
		err   error
	}
	results := make(chan result)
	for _, r := range ranks {
		go func() {
			var blobs [][]byte
			var err error
			if blob := blobOf(r); r == 0 {
				blobs, err = Meeting{}.RendezvousOn(ctx, ln, size, blob)
			} else {
				blobs, err = Rendezvous(ctx, ln.Addr().String(), r, size, blob)
			}
			results <- result{r, blobs, err}
		}()
	}
	blobs, errs := map[int][][]byte{}, map[int]error{}
	for range ranks {
		r := <-results
		blobs[r.rank], errs[r.rank] = r.blobs, r.err
	}
	return blobs, errs
}

func blobOf(rank int) []byte { return bytes.Repeat([]byte{byte(rank)}, rank*7%300) }

func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	return ln
}

func upTo(n int) []int {
	ranks := make([]int, n)
	for i := range ranks {
		ranks[i] = i
	}
	return ranks
}

func TestRendezvous(t *testing.T) {
	for _, size := range []int{1, 2, 3, 33} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			ctx := systest.Context(t)
			got, errs := meet(ctx, t, listen(t), size, upTo(size)...)
			for r := range size {
				require.NoError(t, errs[r])
				require.Len(t, got[r], size)
				for i, blob := range got[r] {
					require.True(t, bytes.Equal(blobOf(i), blob), "rank %d's copy of blob %d", r, i)
				}
			}
		})
	}
}

func TestRendezvousBeforeRankZero(t *testing.T) {
	addr := systest.ReservePort(t).String()
	ctx := systest.Context(t)
	done := make(chan error)
	refused := make(chan struct{})
	go func() {
		_, err := net.Dial("tcp", addr)
		if err != nil {
			close(refused)
		}
		_, err = Rendezvous(ctx, addr, 1, 2, nil)
		done <- err
	}()
	<-refused
	_, err := Rendezvous(ctx, addr, 0, 2, nil)
	require.NoError(t, err)
	require.NoError(t, <-done)
}

func TestRendezvousNamesWhoIsMissing(t *testing.T) {
	_, err := Meeting{}.RendezvousOn(systest.Ending(t, time.Millisecond), listen(t), 2, nil)
	require.ErrorContains(t, err, "rank 1 of 2 has not come")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 11 more of 20 have not come", absent(make([]net.Conn, 20)))

	ln := listen(t)
	host := make(chan error)
	ctx, giveUp := context.WithCancelCause(t.Context())
	go func() {
		_, err := Meeting{}.RendezvousOn(ctx, ln, 4, nil)
		host <- err
	}()
	waiting, _ := comeTwice(t, ln, 4, 2)
	giveUp(errors.New("enough"))
	const want = "rendezvous: ranks 1, 3 of 4 have not come: enough"
	for _, err := range []error{<-host, <-waiting} { // rank 2 learns it, too
		require.EqualError(t, err, want)
		requireRank(t, 1, err)
	}
}

// requireRank wants an error to be about a rank.
func requireRank(t *testing.T, want int, err error) {
	t.Helper()
	rank, ok := RankOf(err)
	require.True(t, ok, err)
	require.Equal(t, want, rank, err)
}

// comeTwice greets rank 0 as the same rank from two processes and returns
// once one of them was told so: then rank 0 surely has the other. It returns
// what the other is told and the blob it brought.
func comeTwice(t *testing.T, ln net.Listener, size, rank int) (<-chan error, string) {
	t.Helper()
	answers := [2]chan error{make(chan error, 1), make(chan error, 1)}
	for i, answer := range answers {
		conn, err := net.Dial("tcp", ln.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_, err = conn.Write(putGreeting(greeting{0, size, rank, fmt.Append(nil, i)}))
		require.NoError(t, err)
		go func() {
			_, err := readAnswer(conn, size)
			answer <- err
		}()
	}
	displaced := fmt.Sprintf("rendezvous: another process came as rank %d", rank)
	select {
	case err := <-answers[0]:
		require.EqualError(t, err, displaced)
		return answers[1], "1"
	case err := <-answers[1]:
		require.EqualError(t, err, displaced)
		return answers[0], "0"
	}
}

func TestRendezvousWithoutRankZero(t *testing.T) {
	nobody := systest.ReservePort(t).String()
	var err error
	systest.Longer(50*time.Millisecond, func(d time.Duration) bool { // until it was refused in time
		_, err = Rendezvous(systest.Ending(t, d), nobody, 1, 2, nil)
		return errors.Is(err, unix.ECONNREFUSED)
	})
	require.ErrorContains(t, err, "rank 1 of 2 got no answer from rank 0 at "+nobody)
	require.ErrorContains(t, err, "refused")
	requireRank(t, 0, err)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// Ranks that began together run out of time together, and rank 0 knows why.
func TestRendezvousEndsWithRankZerosReason(t *testing.T) {
	const want = "rendezvous: rank 2 of 3 has not come: enough"
	var err, hosts error
	systest.Longer(100*time.Millisecond, func(d time.Duration) bool { // until rank 1 has come in time
		ln := listen(t)
		addr := ln.Addr().String()
		host, giveUp := context.WithCancelCause(t.Context())
		ended := make(chan error)
		go func() {
			_, err := Meeting{}.RendezvousOn(host, ln, 3, nil)
			ended <- err
		}()
		ctx := systest.Ending(t, d)
		context.AfterFunc(ctx, func() { giveUp(errors.New("enough")) })
		_, err = Rendezvous(ctx, addr, 1, 3, nil)
		hosts = <-ended
		return err.Error() == want
	})
	require.EqualError(t, err, want)
	requireRank(t, 2, err)
	require.EqualError(t, hosts, want)
}

func TestRendezvousWhereNobodyAnswers(t *testing.T) {
	waits(t)
	ln := listen(t) // and accepts nothing
	var err error
	for _, with := range []string{"", secret} {
		m, e := NewMeeting(0, with)
		require.NoError(t, e)
		systest.Longer(50*time.Millisecond, func(d time.Duration) bool { // until it was connected in time
			_, err = m.Rendezvous(systest.Ending(t, d), ln.Addr().String(), 1, 2, nil)
			return errors.Is(err, errNoAnswer)
		})
		require.ErrorContains(t, err, "(it listens, and has not answered)")
		_, ok := RankOf(err)
		require.False(t, ok, "it may be there and wait for others")
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}

	ctx, give := context.WithCancel(t.Context())
	systest.Later(50*time.Millisecond, give)
	_, err = Rendezvous(ctx, ln.Addr().String(), 1, 2, nil)
	require.ErrorIs(t, err, context.Canceled)
}

func TestRendezvousIgnoresStrangers(t *testing.T) {
	ln := listen(t)
	addr := ln.Addr().String()
	for _, garbage := range [][]byte{
		nil,
		[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		bytes.Repeat([]byte{0xff}, 4096),
		putGreeting(greeting{0, 3, 1, nil})[:greetingSize-1],
		putGreeting(greeting{0, 3, 1, make([]byte, 10)})[:greetingSize+5],
	} {
		conn, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		_, err = conn.Write(garbage)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() }) // They stay: rank 0 must not wait for them.
	}
	ctx := systest.Context(t)
	got, errs := meet(ctx, t, ln, 3, 0, 1, 2)
	for r := range 3 {
		require.NoError(t, errs[r])
		require.Equal(t, [][]byte{blobOf(0), blobOf(1), blobOf(2)}, got[r])
	}
}

func TestRendezvousTurnsAwayAnotherSize(t *testing.T) {
	ln := listen(t)
	ctx := systest.Context(t)
	host := make(chan error)
	short, giveUp := context.WithCancelCause(ctx)
	go func() {
		_, err := Meeting{}.RendezvousOn(short, ln, 2, nil)
		host <- err
	}()
	_, err := Rendezvous(ctx, ln.Addr().String(), 3, 4, nil)
	require.EqualError(t, err, "rendezvous: rank 0 was started for 2 ranks, this is rank 3 of 4")
	var refused *Refusal
	require.ErrorAs(t, err, &refused)
	require.Equal(t, &collective.Disagreement{Ranks: [2]int{0, 3}, What: [2]string{"2 ranks", "4 ranks"}}, refused.Between)
	giveUp(errors.New("enough"))
	require.EqualError(t, <-host,
		"rendezvous: rank 1 of 2 has not come: enough; a process that came as rank 3 of 4 was turned away")
}

// TestRendezvousTurnsAwayAnotherJob has a straggler come first and after the
// true rank 1: it must neither be taken for it nor replace it.
func TestRendezvousTurnsAwayAnotherJob(t *testing.T) {
	ln := listen(t)
	ctx := systest.Context(t)
	ours, theirs := Meeting{Key: 7}, Meeting{Key: 8}
	host := make(chan [][]byte)
	go func() {
		blobs, err := ours.RendezvousOn(ctx, ln, 3, []byte("zero"))
		if err != nil {
			t.Error(err)
		}
		host <- blobs
	}()
	straggle := func(m Meeting) {
		_, err := m.Rendezvous(ctx, ln.Addr().String(), 1, 3, []byte("straggler"))
		require.EqualError(t, err, "rendezvous: rank 0 of another job listens there by now")
	}
	straggle(theirs)
	first, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer first.Close()
	_, err = first.Write(putGreeting(greeting{ours.Key, 3, 1, []byte("one")}))
	require.NoError(t, err)
	straggle(theirs)
	straggle(Meeting{})
	_, err = ours.Rendezvous(ctx, ln.Addr().String(), 2, 3, []byte("two"))
	require.NoError(t, err)
	want := [][]byte{[]byte("zero"), []byte("one"), []byte("two")}
	require.Equal(t, want, <-host)
	got, err := readAnswer(first, 3)
	require.NoError(t, err)
	require.Equal(t, want, got)

	ctx, giveUp := context.WithCancelCause(t.Context())
	ln = listen(t)
	alone := make(chan error)
	go func() {
		_, err := ours.RendezvousOn(ctx, ln, 2, nil)
		alone <- err
	}()
	_, err = theirs.Rendezvous(t.Context(), ln.Addr().String(), 1, 2, nil)
	require.Error(t, err)
	giveUp(errors.New("enough"))
	require.EqualError(t, <-alone,
		"rendezvous: rank 1 of 2 has not come: enough; a process of another job was turned away")
}

func TestRendezvousTakesTheLastOfARank(t *testing.T) {
	ln := listen(t)
	ctx := systest.Context(t)
	host := make(chan [][]byte)
	go func() {
		blobs, err := Meeting{}.RendezvousOn(ctx, ln, 3, []byte("zero"))
		if err != nil {
			t.Error(err)
		}
		host <- blobs
	}()
	last, blob := comeTwice(t, ln, 3, 1)
	_, err := Rendezvous(ctx, ln.Addr().String(), 2, 3, []byte("two"))
	require.NoError(t, err)
	require.NoError(t, <-last)
	require.Equal(t, [][]byte{[]byte("zero"), []byte(blob), []byte("two")}, <-host)
}

func TestRendezvousArguments(t *testing.T) {
	for _, c := range []struct {
		rank, size int
		blob       []byte
		want       string
	}{
		{0, 0, nil, "size 0 is not allowed: want 1 to 32768"},
		{2, 2, nil, "rank 2 is not allowed: want 0 to 1"},
		{-1, 2, nil, "rank -1 is not allowed"},
		{0, 2, make([]byte, maxPart+1), "a blob of 16385 bytes is not allowed"},
	} {
		_, err := Rendezvous(t.Context(), "127.0.0.1:1", c.rank, c.size, c.blob)
		require.ErrorContains(t, err, c.want)
	}
	ln := listen(t)
	_, err := Rendezvous(t.Context(), ln.Addr().String(), 0, 2, nil)
	require.ErrorContains(t, err, "rank 0 cannot listen for the others")
	require.ErrorContains(t, err, "address already in use")
}

func TestListenAddr(t *testing.T) {
	for addr, want := range map[string]string{
		"127.0.0.1:5": "127.0.0.1:5", "localhost:5": "localhost:5", "[::1]:5": "[::1]:5",
		"10.0.0.1:5": ":5", "node7:5": ":5", "nonsense": "nonsense",
	} {
		require.Equal(t, want, listenAddr(addr))
	}
}

// TestGreetingOfAStranger claims more than there is room for.
func TestGreetingOfAStranger(t *testing.T) {
	var g greeting
	require.NoError(t, g.read(bytes.NewReader(putGreeting(greeting{blob: make([]byte, maxPart)}))))
	require.Equal(t, errForeign, g.read(bytes.NewReader(putGreeting(greeting{blob: make([]byte, maxPart+1)}))))
}

func FuzzGreeting(f *testing.F) {
	f.Add(putGreeting(greeting{9, 4, 1, []byte("blob")}))
	f.Add(putAnswer(0, [][]byte{nil, []byte("x")}))
	f.Fuzz(func(t *testing.T, b []byte) {
		var g greeting
		if g.read(bytes.NewReader(b)) == nil {
			require.True(t, bytes.HasPrefix(b, putGreeting(g)))
		}
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add(putAnswer(0, [][]byte{nil, []byte("x")}))
	f.Add(putAnswer(1, [][]byte{[]byte("no")}))
	f.Fuzz(func(t *testing.T, b []byte) {
		parts, err := readAnswer(bytes.NewReader(b), 2)
		if err == nil {
			require.True(t, bytes.HasPrefix(b, putAnswer(0, slices.Clone(parts))))
		}
	})
}
