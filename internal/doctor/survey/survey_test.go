package survey

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/doctor"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// hostOn is host i of a job in which each host has an address of loopback.
func hostOn(i int) doctor.Facts {
	return doctor.Facts{
		Host:   fmt.Sprintf("host%d", i),
		Chosen: doctor.Choice{Name: "lo", Address: fmt.Sprintf("127.0.0.%d", i+1)},
	}
}

// take takes part as a host that does not coordinate.
func take(ctx context.Context, t assert.TestingT, o Options, facts doctor.Facts) {
	o.Facts = facts
	r, err := Run(ctx, o)
	assert.NoError(t, err, facts.Host)
	assert.Nil(t, r, "the coordinator has it")
}

// coordinate takes part as host0.
func coordinate(ctx context.Context, o Options) (*Result, error) {
	o.Facts, o.Coordinate = hostOn(0), true
	return Run(ctx, o)
}

// TestAHostWithoutAnAddress: a host without an address still reports its facts.
func TestAHostWithoutAnAddress(t *testing.T) {
	o := Options{Meet: systest.ReservePort(t).String(), Hosts: 2, Wait: systest.Limit}
	var others sync.WaitGroup
	defer others.Wait()
	without := doctor.Facts{Host: "host1", Chosen: doctor.Choice{Error: "there is no interface eth9"}}
	others.Go(func() { take(t.Context(), t, o, without) })
	r, err := coordinate(t.Context(), o)
	require.NoError(t, err)
	assert.Len(t, r.Hosts, 2)
	assert.Empty(t, r.Matrix.Pairs)
	assert.Empty(t, r.Findings)
}
