package mesh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// graph joins size ranks by TCP over loopback. Dumb ranks hold their
// connections and never say anything.
type graph struct {
	mesh   []*Mesh
	conns  []map[int]net.Conn
	faults []chan *Fault
}

func newGraph(t *testing.T, size int, timeout time.Duration, dumb ...int) *graph {
	t.Helper()
	return newGraphOver(t, func() (a, b net.Conn) { return systest.Pair(t) }, size, timeout, dumb...)
}

// newGraphOver is newGraph over other connections.
func newGraphOver(t *testing.T, connect func() (a, b net.Conn), size int, timeout time.Duration, dumb ...int) *graph {
	t.Helper()
	g := &graph{conns: make([]map[int]net.Conn, size)}
	for r := range size {
		g.conns[r] = map[int]net.Conn{}
	}
	for r := range size {
		for _, p := range Neighbours(r, size) {
			if p < r {
				continue
			}
			a, b := connect()
			g.conns[r][p], g.conns[p][r] = a, b
			t.Cleanup(func() { // those of the dumb; a mesh closes its own
				_ = a.Close()
				_ = b.Close()
			})
		}
	}
	for r := range size {
		faults := make(chan *Fault, 4)
		if slices.Contains(dumb, r) {
			g.faults, g.mesh = append(g.faults, faults), append(g.mesh, nil)
			continue
		}
		g.faults = append(g.faults, faults)
		g.mesh = append(g.mesh,
			New(r, size, g.conns[r], timeout, time.Minute, func(f *Fault) { faults <- f }, func(int, Posted) {}))
	}
	t.Cleanup(func() {
		for _, m := range g.mesh {
			if m != nil {
				m.Close()
			}
		}
	})
	return g
}

// buffered is a connection in a bubble. As in a kernel, sent bytes wait for the reader.
func buffered() (a, b net.Conn) {
	a, far := net.Pipe()
	b, near := net.Pipe()
	go carry(far, near)
	go carry(near, far)
	return a, b
}

// carry brings what comes from one end to the other, until that is closed.
func carry(from, to net.Conn) {
	waiting := make(chan []byte, 1000)
	go func() {
		for b := range waiting {
			_, _ = to.Write(b) // nobody may read it any more
		}
		_ = to.Close()
	}()
	for {
		b := make([]byte, 1<<10)
		n, err := from.Read(b)
		if err != nil {
			close(waiting)
			return
		}
		waiting <- b[:n]
	}
}

// slow is a connection that takes its time to write a fault.
type slow struct{ *net.TCPConn }

func (c slow) Write(b []byte) (int, error) {
	if b[0] == fault {
		systest.Pause(50 * time.Millisecond)
	}
	return c.TCPConn.Write(b)
}

// TestReportBeforeClose has a rank leave while it still tells its neighbours why.
func TestReportBeforeClose(t *testing.T) {
	g := newGraph(t, 3, time.Minute, 0)
	conns := map[int]net.Conn{}
	for r, c := range g.conns[0] {
		conns[r] = slow{c.(*net.TCPConn)}
	}
	m := New(0, 3, conns, time.Minute, time.Minute, func(*Fault) {}, func(int, Posted) {})
	whole := &Fault{
		Kind: Mismatch, Rank: 0, From: 2,
		Between: &collective.Disagreement{Ranks: [2]int{0, 2}, What: [2]string{"a \"barrier\"", "b\x00"}},
		Text:    "ranks disagree",
	}
	go m.Report(whole)
	systest.Eventually(t, func() bool { return m.Err() != nil })
	m.Close()
	for r := 1; r < 3; r++ {
		require.Equal(t, whole, <-g.faults[r])
	}
}

// TestNeighbourComesAfterTheFault: one that is connected when a fault is known is told at once.
func TestNeighbourComesAfterTheFault(t *testing.T) {
	dead := &Fault{Kind: Dead, Rank: 2, Text: "refuses connections"}
	g := newGraph(t, 3, time.Minute, 0)
	m := New(0, 3, nil, time.Minute, time.Minute, func(*Fault) {}, func(int, Posted) {})
	m.Report(dead)
	m.Add(1, g.conns[0][1])
	require.Equal(t, dead, <-g.faults[1])
	m.Close()
	m.Add(2, g.conns[0][2])
	_, err := g.conns[0][2].Write([]byte{1})
	require.ErrorIs(t, err, net.ErrClosed, "nobody is there any more")
}

// TestSilent names the neighbour that says nothing, though it is not dead yet.
func TestSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 3 * time.Second
		g := newGraphOver(t, buffered, 3, timeout, 2)
		time.Sleep(5 * timeout / 6) //nolint:forbidigo // in a bubble
		rank, ok := g.mesh[0].Silent()
		require.True(t, ok)
		require.Equal(t, 2, rank)
		require.NoError(t, g.mesh[0].Err())
	})
}

func TestAgree(t *testing.T) {
	for _, size := range []int{1, 2, 3, 5, 8, 13} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			g := newGraph(t, size, time.Minute)
			for turn := range 3 {
				var wg sync.WaitGroup
				for r := range size {
					wg.Add(1)
					go func() {
						defer wg.Done()
						got, err := g.mesh[r].Agree(context.Background(), fmt.Appendf(nil, "%d/%d", r, turn))
						if assert.NoError(t, err) {
							for q := range size {
								assert.Equal(t, fmt.Sprintf("%d/%d", q, turn), string(got[q]))
							}
						}
					}()
				}
				wg.Wait()
			}
		})
	}
}

// TestAgreeOnMuch has ranks bring more than a frame may hold.
func TestAgreeOnMuch(t *testing.T) {
	const size, bytes = 4, maxPayload/3 + 1
	g := newGraph(t, size, time.Minute)
	var wg sync.WaitGroup
	for r := range size {
		wg.Go(func() {
			mine := make([]byte, bytes)
			mine[bytes-1] = byte(r)
			got, err := g.mesh[r].Agree(t.Context(), mine)
			if assert.NoError(t, err) {
				for q := range size {
					assert.Len(t, got[q], bytes)
					assert.Equal(t, byte(q), got[q][bytes-1])
				}
			}
		})
	}
	wg.Wait()
	_, err := g.mesh[0].Agree(t.Context(), make([]byte, maxRecords/size))
	require.ErrorContains(t, err, "with 4 ranks at most 67108858 are allowed")
}

func TestAgreeNamesWhoDoesNotAnswer(t *testing.T) {
	g := newGraph(t, 2, time.Minute)
	_, err := g.mesh[0].Agree(systest.Ending(t, 20*time.Millisecond), []byte("x"))
	require.ErrorContains(t, err, "rank 1 has not answered")
}

// TestOneFaultForAll kills one rank's connections; all others, neighbours or
// not, must end with the same first fault or one that names the same rank.
func TestOneFaultForAll(t *testing.T) {
	const size, victim = 9, 4
	g := newGraph(t, size, time.Minute, victim) // dumb, or it would blame its neighbours
	for _, c := range g.conns[victim] {
		require.NoError(t, c.Close())
	}
	for r := range size {
		if r == victim {
			continue
		}
		f := systest.Receive(t, g.faults[r], "rank %d was not told", r)
		assert.Equal(t, Dead, f.Kind)
		assert.Equal(t, victim, f.Rank, f.Error())
		assert.Equal(t, error(f), g.mesh[r].Err())
	}
}

// TestLateNeighbour has a rank connected that comes to New after several timeouts: it is not
// dead. Silent later, it is.
func TestLateNeighbour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 3 * time.Second
		g := newGraphOver(t, buffered, 3, timeout, 2)
		time.Sleep(5 * timeout) //nolint:forbidigo // in a bubble
		late := New(2, 3, g.conns[2], timeout, time.Minute, func(*Fault) {}, func(int, Posted) {})
		var wg sync.WaitGroup
		for _, m := range []*Mesh{g.mesh[0], g.mesh[1], late} {
			wg.Go(func() {
				_, err := m.Agree(t.Context(), []byte("x"))
				assert.NoError(t, err)
			})
		}
		wg.Wait()
		late.Close()
	})
}

func TestSilenceIsAFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGraphOver(t, buffered, 3, 3*time.Second, 2)
		for _, c := range g.conns[2] { // a sign of life, and no other
			_, err := c.Write([]byte{beat, 0, 0, 2, 0, 0, 0, 0})
			require.NoError(t, err)
		}
		for r := range 2 {
			f := <-g.faults[r]
			assert.Equal(t, 2, f.Rank)
			assert.Contains(t, f.Text, "silent")
		}
	})
}

// starved is a connection that delivers every second message only after the deadline of the read.
type starved struct {
	net.Conn
	reads int
	late  []byte
}

func (c *starved) Read(b []byte) (int, error) {
	if len(c.late) > 0 {
		n := copy(b, c.late)
		c.late = c.late[n:]
		return n, nil
	}
	n, err := c.Conn.Read(b)
	if c.reads++; c.reads%2 == 0 && err == nil {
		c.late = append(c.late, b[:n]...)
		return 0, os.ErrDeadlineExceeded
	}
	return n, err
}

// TestStarvedRank: a rank that was kept from running takes no peer for dead that has gone on.
func TestStarvedRank(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		faults := make(chan *Fault, 2)
		fault := func(f *Fault) { faults <- f }
		a := New(0, 2, map[int]net.Conn{1: &starved{Conn: near}}, 30*time.Second, time.Minute, fault, func(int, Posted) {})
		b := New(1, 2, map[int]net.Conn{0: far}, 30*time.Second, time.Minute, fault, func(int, Posted) {})
		time.Sleep(5 * time.Minute) //nolint:forbidigo // in a bubble
		require.Empty(t, faults)
		a.Close()
		b.Close()
	})
}

// TestTrickle: a frame that never ends keeps nobody alive.
func TestTrickle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, far) }()
		faults := make(chan *Fault, 1)
		start := time.Now()
		m := New(0, 2, map[int]net.Conn{1: near}, 12*time.Second, 12*time.Second, func(f *Fault) { faults <- f },
			func(int, Posted) {})
		var sender sync.WaitGroup
		sender.Go(func() {
			_, err := far.Write([]byte{beat, 0, 0, 1, 0, 0, 0, 255})
			for err == nil {
				time.Sleep(500 * time.Millisecond) //nolint:forbidigo // in a bubble
				_, err = far.Write([]byte{0})
			}
		})
		f := <-faults
		require.Equal(t, 1, f.Rank)
		took := time.Since(start) //nolint:forbidigo // in a bubble
		require.LessOrEqual(t, took, 37*time.Second, "SilenceFor, once for its first byte and once for the rest")
		_ = far.Close()
		m.Close()
		sender.Wait()
	})
}

// Who leaves goes on reading: to close while bytes of the peer come would reset the connection, and
// what this rank has said last could be lost.
func TestLeaveArrivesWhileThePeerSends(t *testing.T) {
	g := newGraph(t, 2, time.Minute, 1)
	conn := g.conns[1][0].(*net.TCPConn)
	frames := make([]byte, 1<<16)
	for i := 0; i < len(frames); i += frameHead {
		frames[i] = beat
	}
	// for all leave, then Close has time
	_, err := conn.Write(append([]byte{leave, 0, 0, 1, 0, 0, 0, 16}, make([]byte, 16)...))
	require.NoError(t, err)
	var sender sync.WaitGroup
	enough := make(chan struct{})
	sender.Go(func() {
		for {
			select {
			case <-enough:
				return
			default:
			}
			if _, err := conn.Write(frames); !assert.NoError(t, err) {
				return
			}
		}
	})
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		g.mesh[0].Leave(Posted{})
		<-g.mesh[0].AllLeave()
		g.mesh[0].Close()
	}()
	var head [frameHead]byte
	for head[0] != leave {
		_, err := io.ReadFull(conn, head[:])
		require.NoError(t, err)
	}
	var posted [16]byte
	_, err = io.ReadFull(conn, posted[:])
	require.NoError(t, err)
	systest.Pause(10 * time.Millisecond) // in which it would reset the connection
	close(enough)
	sender.Wait()
	_, err = io.Copy(io.Discard, conn)
	require.NoError(t, err, "it ends, and is not reset")
	require.NoError(t, conn.Close())
	<-closed
}

func TestLostWithoutFarewell(t *testing.T) {
	g := newGraph(t, 5, time.Minute)
	g.mesh[0].Lost(2, errors.New("stream cut"))
	for r := range g.mesh {
		f := systest.Receive(t, g.faults[r], "rank %d was not told", r)
		assert.Equal(t, 2, f.Rank)
		assert.Contains(t, f.Error(), "stream cut")
	}
}

func TestGarbageOnAnEdge(t *testing.T) {
	g := newGraph(t, 2, time.Minute)
	_, err := g.conns[1][0].Write([]byte("GET / HTTP/1.0\r\n\r\n________________"))
	require.NoError(t, err)
	f := systest.Receive(t, g.faults[0], "garbage was taken for a frame")
	assert.Equal(t, 1, f.Rank)
	assert.Contains(t, f.Text, "frame of")
}

func FuzzUnpack(f *testing.F) {
	f.Add(pack([][]byte{[]byte("a"), nil, []byte("bc")}))
	f.Add([]byte{0, 1, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		known := make([][]byte, 4)
		if unpack(b, known) == nil {
			again := make([][]byte, 4)
			require.NoError(t, unpack(pack(known), again))
			require.Equal(t, known, again)
		}
	})
}
