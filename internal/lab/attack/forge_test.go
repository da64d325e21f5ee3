package attack

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/seal"
)

// Every way changes the datagram as it says and leaves the recorded one as it is. No forged datagram has a right tag,
// except a replay and the few changes that change nothing.
func TestForge(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	key := make([]byte, seal.KeySize)
	h := wire.Data{Job: 7, Collective: wire.Allgather, Root: 1, Seq: 100, PSN: 3, Bytes: 9000}
	of := datagram{make([]byte, sealed+1000), 1}
	h.Put(of.bytes)
	scramble(r, of.bytes[sealed:])
	seal.New(seal.Tags, key, 1).Seal(h.Seq, of.bytes[:sealed], of.bytes[sealed:], nil)
	before := append([]byte{}, of.bytes...)
	for way := range waysCount {
		same := 0
		for range 1000 {
			f := forge(r, way, of, 4)
			require.Equal(t, before, of.bytes)
			if string(f.bytes) == string(before) {
				same++
				continue
			}
			var got wire.Data
			if len(f.bytes) < sealed || got.Get(f.bytes) != nil {
				continue
			}
			require.False(t, seal.New(seal.Tags, key, 0).Open(uint32(got.Root), got.Seq, f.bytes[:sealed], f.bytes[sealed:]),
				"%v", way)
		}
		if way == Replay {
			require.Equal(t, 1000, same)
		} else {
			require.Less(t, same, 500, "%v", way)
		}
	}
}
