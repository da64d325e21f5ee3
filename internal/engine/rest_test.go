package engine

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// restful is a lossless fabric that rests.
type restful struct {
	lossless
	awake func()
}

func (f *restful) Rest(awake func()) bool { f.awake = awake; return true }
func (f *restful) Rouse()                 { f.awake = nil }

// TestEngineRestsWithItsFabric, and is called when its operations fail.
func TestEngineRestsWithItsFabric(t *testing.T) {
	plain, _ := rank0()
	require.False(t, plain.Rest(func() {}), "its fabric does not rest")
	plain.Rouse()

	g, _ := rank0()
	f := &restful{lossless: *g.fab.(*lossless)}
	g.fab = f
	calls := 0
	awake := func() { calls++ }
	require.True(t, g.Rest(awake))
	require.NotNil(t, f.awake)
	g.Rouse()
	require.Nil(t, f.awake)
	g.Wake()
	require.Zero(t, calls, "nobody is called after Rouse")

	require.True(t, g.Rest(awake))
	_, err := g.Submit(allgather(1), nil)
	require.NoError(t, err)
	require.Equal(t, 1, calls, "an operation ends a rest, though nobody drives yet")
	g.Rouse()
	require.False(t, g.Rest(awake), "it can begin")
	g.Rouse()

	g, _ = rank0()
	g.fab, calls = f, 0
	require.True(t, g.Rest(awake))
	g.Fail(errors.New("over"))
	require.Equal(t, 1, calls)
	g.Rouse()
	require.False(t, g.Rest(awake), "there is something to do")
	g.Rouse()
	g.Work()
	require.True(t, g.Rest(awake), "nothing comes any more")
	require.Nil(t, f.awake)
	g.Rouse()
}

// TestReduceRestsBeforeItsFirstOperation, and is called for an order.
func TestReduceRestsBeforeItsFirstOperation(t *testing.T) {
	r := NewReduce(ReduceConfig{Rank: 0, Size: 2, Broken: func(error) {}})
	calls := make(chan struct{}, 10)
	require.True(t, r.Rest(func() { calls <- struct{}{} }))
	done := make(chan error, 1)
	go func() { done <- r.Do(context.Background(), func() {}) }()
	<-calls
	r.Rouse()
	require.False(t, r.Rest(func() {}), "an order waits")
	r.Rouse()
	require.True(t, r.Work())
	require.NoError(t, <-done)
	require.NoError(t, r.Close())
}
