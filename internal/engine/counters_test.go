package engine

import (
	"reflect"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/reducescatter"
)

// TestCountersArePassedOn: every counter of a protocol, in its place, while others read.
func TestCountersArePassedOn(t *testing.T) {
	passOn[multicast.Stats](t)
	passOn[multicast.Awaited](t)
	passOn[reducescatter.Stats](t)
}

func passOn[T any](t *testing.T) {
	var c counters[T]
	var now T
	fields := reflect.ValueOf(&now).Elem()
	set := func(round uint64) {
		for i := range fields.NumField() {
			require.Equal(t, reflect.Uint64, fields.Field(i).Kind(), "%v.%s", fields.Type(), fields.Type().Field(i).Name)
			fields.Field(i).SetUint(round*100 + uint64(i))
		}
	}
	var readers sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		readers.Go(func() {
			for last := uint64(0); ; {
				seen := c.load()
				n := reflect.ValueOf(seen).Field(0).Uint()
				if !assert.GreaterOrEqual(t, n, last, "counters only grow") {
					return
				}
				last = n
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for round := range uint64(1000) {
		set(round)
		c.store(now)
		require.Equal(t, now, c.load())
	}
	close(done)
	readers.Wait()
	require.Zero(t, testing.AllocsPerRun(100, func() { c.store(now) }))
}
