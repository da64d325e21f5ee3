package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// TestDeadPaths lets paths die for good, at the start and in the middle: where it is the datagrams'
// alone, all operations succeed by repairs; where messages are lost, they end with an error. None
// hangs.
func TestDeadPaths(t *testing.T) {
	for name, c := range map[string]struct {
		dead   network.Dead
		breaks bool
	}{
		"all multicast of a root":      {network.Dead{From: 1, To: -1, Multicast: true}, false},
		"all multicast to a rank":      {network.Dead{From: -1, To: 1, Multicast: true}, false},
		"all multicast":                {network.Dead{From: -1, To: -1, Multicast: true}, false},
		"large datagrams to a rank":    {network.Dead{From: -1, To: 2, Multicast: true, Bytes: 512}, false},
		"messages, one way":            {network.Dead{From: 1, To: 2, Unicast: true}, true},
		"messages, the other way":      {network.Dead{From: 2, To: 1, Unicast: true}, true},
		"everything, one way":          {network.Dead{From: 1, To: 2, Multicast: true, Unicast: true}, true},
		"all that is large to a rank":  {network.Dead{From: -1, To: 2, Multicast: true, Unicast: true, Bytes: 512}, true},
		"large messages to a rank":     {network.Dead{From: -1, To: 2, Unicast: true, Bytes: 512}, false},
		"all that is large everywhere": {network.Dead{From: -1, To: -1, Multicast: true, Unicast: true, Bytes: 512}, true},
	} {
		for _, at := range []multicast.Time{0, time.Millisecond} {
			t.Run(fmt.Sprintf("%s, from %v", name, at), func(t *testing.T) {
				s := steady(8, 100)
				c.dead.At = at
				s.Net.Faults.Dead, s.Net.GiveUp = []network.Dead{c.dead}, GiveUp
				r := s.Run()
				require.NoError(t, r.Err, r.String())
				if c.breaks {
					assert.Less(t, r.Ops, 8*4)
					assert.Less(t, r.Time, 2*GiveUp, "what was on its way is given up as well")
				} else {
					assert.Equal(t, 8*4, r.Ops)
				}
			})
		}
	}
}

// TestStrangers lets a stranger's datagram come before every packet.
func TestStrangers(t *testing.T) {
	s := steady(0, 0)
	s.Forged, s.Net.Faults.Loss = 1, 0.01
	for i := range 300 {
		o := Op{Op: multicast.Op{Collective: wire.Allgather, Bytes: i * 7 % 3000}}
		if i%3 == 0 {
			o.Collective, o.Root = wire.Broadcast, i%4
		}
		s.Ops = append(s.Ops, o)
	}
	r := s.Run()
	require.NoError(t, r.Err, r.String())
	assert.Equal(t, 300*4, r.Ops)
	assert.Greater(t, r.Stats.Mismatched, uint64(100))
}

// TestNumbersWrap lets the numbers of operations come round, as signed and as unsigned ones, with
// loss.
func TestNumbersWrap(t *testing.T) {
	for _, wrap := range []uint32{1 << 31, 0} {
		s := steady(0, 0)
		s.Core.First = wrap - 300
		s.Net.Faults.Loss, s.Net.Faults.Duplicate = 0.05, 0.01
		for i := range 600 {
			o := Op{Op: multicast.Op{Collective: wire.Allgather, Bytes: 100, Sync: i%50 == 49}}
			if i%20 == 0 {
				o.Bytes = 30_000
			}
			s.Ops = append(s.Ops, o)
		}
		r := s.Run()
		require.NoError(t, r.Err, r.String())
		assert.Equal(t, 600*4, r.Ops)
		assert.Positive(t, r.Stats.Repaired)
	}
}
