package udp

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkTurn has one goroutine multicast a shard and receive it by turns: what the calls cost
// without anybody to wait for.
func BenchmarkTurn(b *testing.B) {
	for _, offload := range offloads {
		for _, chunk := range []int{0, 1440} {
			b.Run(fmt.Sprintf("%v/%d", offload, chunk), func(b *testing.B) {
				const turn = 64 // chunks
				ranks, _ := group(b, 2, func(o *Options) { o.Offload, o.Chunk = offload, chunk })
				chunk := ranks[0].Traits().Chunk
				turns := min(turn, ranks[1].Traits().Window)
				s := newSink(1, 2, chunk, turns*chunk)
				r := run(0, 1, make([]byte, turns*chunk), 0, turns)
				b.SetBytes(int64(chunk))
				b.ReportAllocs()
				b.ResetTimer()
				for sent := 0; sent < b.N; sent += turns {
					s.begin(1)
					require.Equal(b, turns, ranks[0].Multicast(r))
					for s.left > 0 {
						ranks[1].Poll(s, turn)
					}
				}
			})
		}
	}
}
