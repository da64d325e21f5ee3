package composite

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// fake is streams of one kind. What is sent to a place comes from there.
type fake struct {
	name     string
	bytes    map[int][]byte
	woken    chan struct{}
	watching func()
	withdrew bool
	ready    bool
	closed   bool
}

func newFake(name string) *fake {
	return &fake{name: name, bytes: map[int][]byte{}, woken: make(chan struct{}, 1)}
}

func (f *fake) Send(to int, b []byte) int {
	f.bytes[to] = append(f.bytes[to], b...)
	if f.watching != nil {
		f.watching()
	}
	return len(b)
}
func (f *fake) Peek(from, most int) []byte { return f.bytes[from][:min(most, len(f.bytes[from]))] }
func (f *fake) Consume(from, n int)        { f.bytes[from] = f.bytes[from][n:] }
func (f *fake) Err(place int) error {
	if place == 1 {
		return errors.New(f.name)
	}
	return nil
}
func (f *fake) Sleep(d time.Duration) {
	if d > 0 {
		<-f.woken
	}
}
func (f *fake) Stats() fabric.Stats {
	return fabric.Stats{SentBytes: uint64(len(f.name)), Syscalls: 1}
}
func (f *fake) Wake()                                         { f.woken <- struct{}{} }
func (f *fake) Close() error                                  { f.closed = true; return nil }
func (f *fake) Pulls(int) bool                                { return true }
func (f *fake) Pull(_ int, address uintptr, to []byte) error  { to[0] = byte(address); return nil }
func (f *fake) Withdraw()                                     { f.withdrew = true }
func (f *fake) Unwatch()                                      { f.watching = nil }
func (f *fake) Watch(d time.Duration, a func()) time.Duration { f.watching = a; return d }
func (f *fake) Rest(func()) bool                              { return f.name == "memory" }
func (f *fake) Ready() bool                                   { return f.ready }
func (f *fake) Rouse()                                        {}

func TestStreams(t *testing.T) {
	memory, network := newFake("memory"), newFake("network")
	c := New(memory, []int{0, 2}, network, []int{1, 2, 3}) // of rank 2
	for rank, to := range map[int]*fake{0: memory, 1: network, 3: network} {
		place := map[int]int{0: 0, 1: 0, 3: 2}[rank]
		require.Equal(t, 3, c.Send(rank, []byte("abc")))
		require.Equal(t, []byte("abc"), to.bytes[place])
		require.Equal(t, []byte("ab"), c.Peek(rank, 2))
		c.Consume(rank, 1)
		b := make([]byte, 5)
		require.Equal(t, 2, c.Read(rank, b))
		require.Equal(t, []byte("bc"), b[:2])
		require.Empty(t, c.Peek(rank, 1))
		require.NoError(t, c.Err(rank))
		require.Equal(t, to == memory, c.Pulls(rank))
	}
	require.EqualError(t, c.Err(2), "memory")
	b := make([]byte, 1)
	require.NoError(t, c.Pull(0, 9, b))
	require.Equal(t, byte(9), b[0])
	require.Equal(t, fabric.Stats{SentBytes: 13, Syscalls: 2}, c.Stats())
	require.False(t, c.Rest(func() {}))

	c.Wake()
	c.Sleep(time.Hour)
	slept := make(chan struct{})
	go func() {
		defer close(slept)
		c.Sleep(time.Hour)
	}()
	memory.woken <- struct{}{} // as by a rank of this host
	<-slept
	require.Nil(t, network.watching)
	network.Watch(0, memory.Wake)
	network.Send(0, nil) // as by the network, before the sleep
	c.Sleep(time.Hour)

	for _, f := range []*fake{memory, network} {
		f.ready = true
		c.Sleep(time.Hour)
		f.ready = false
	}

	c.Withdraw()
	require.NoError(t, c.Close())
	require.True(t, memory.withdrew && !network.withdrew && memory.closed && network.closed)
}
