package datagram

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkTurn has one goroutine send and receive by turns, 64 datagrams a turn: what the calls cost
// without anybody to wait for.
func BenchmarkTurn(b *testing.B) {
	for _, offload := range offloads {
		b.Run(fmt.Sprint(offload), func(b *testing.B) {
			const size = 1440
			from, to := pair(b, Options{Offload: offload})
			batch, err := NewBatch(head, size)
			require.NoError(b, err)
			defer func() { require.NoError(b, batch.Close()) }()
			payload, got := make([]byte, size), &tally{}
			b.SetBytes(size)
			b.ReportAllocs()
			b.ResetTimer()
			for sent := 0; sent < b.N; {
				for sent+batch.Added() < b.N && batch.Add(payload) != nil {
					continue
				}
				n, err := batch.Flush(from)
				sent += n
				for err == nil && got.datagrams < sent {
					_, err = batch.Receive(to, nil, MaxBatch, got)
				}
				require.NoError(b, err)
			}
		})
	}
}
