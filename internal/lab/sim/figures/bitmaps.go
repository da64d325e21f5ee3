package figures

import (
	"fmt"
	"math"
	"runtime"

	"gonum.org/v1/plot"

	"github.com/torch-mcast/torch-mcast/internal/lab/chart"
	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

const (
	bitmapChunk = 4096       // bytes, as in the paper
	llc         = 1536 << 10 // bytes of the DPA's last-level cache (II-C)
)

// bitmapRow is a point of fig. 7.
type bitmapRow struct {
	PSNBits     int     `json:"psn_bits"`
	BufferBytes float64 `json:"receive_buffer_bytes"`
	BitmapBytes float64 `json:"bitmap_bytes"`                   // one bit a chunk, as in the paper
	CoreBytes   float64 `json:"core_bytes_an_operation"`        // all that internal/protocol/multicast keeps
	Ranks       int     `json:"ranks_of_measurement,omitempty"` // 0: not measured
}

// bitmaps models how much memory PSNs of some bits address and what state that takes (fig. 7).
func bitmaps(s *sheet) error {
	const ranks = 64
	c := chart.New("Receive buffer and protocol state (chunks of 4 KiB)", "PSN bits", "bytes")
	most := 26
	if s.Quick {
		most = 20
	}
	var buffer, bitmap, state []chart.Point
	for bits := 12; bits <= 32; bits += 2 {
		chunks := math.Exp2(float64(bits))
		row := bitmapRow{PSNBits: bits, BufferBytes: chunks * bitmapChunk, BitmapBytes: chunks / 8}
		if bits <= most {
			row.Ranks = ranks
			row.CoreBytes = float64(stateOf(ranks, int(chunks)/ranks))
			state = append(state, chart.Point{X: float64(bits), Y: row.CoreBytes})
		}
		if err := s.row(row); err != nil {
			return err
		}
		buffer = append(buffer, chart.Point{X: float64(bits), Y: row.BufferBytes})
		bitmap = append(bitmap, chart.Point{X: float64(bits), Y: row.BitmapBytes})
	}
	c.Line("receive buffer", buffer)
	c.Line("one bit a chunk (the paper's bitmap)", bitmap)
	c.Line(fmt.Sprintf("measured: all state of an operation, %d ranks", ranks), state)
	c.Level("LLC of the DPA, 1.5 MB", 12, 32, llc)
	c.Level("memory of an H100, 80 GB", 12, 32, 80e9)
	c.X.Tick.Marker = chart.TicksAt(chart.Plain, []float64{12, 16, 20, 24, 28, 32})
	c.Y.Scale, c.Y.Tick.Marker = plot.LogScale{},
		chart.TicksAt(chart.Size, []float64{1 << 10, 32 << 10, 1 << 20, 32 << 20, 1 << 30, 32 << 30, 1 << 40, 16 << 40})
	c.Y.Max = 1 << 50
	s.chart("", c)

	fits := float64(llc) * 8 * bitmapChunk
	s.claim("buffer that a bitmap of 1.5 MB addresses", "about 50 GB", "%.1f GB", fits/1e9).arithmetic()
	small := float64(64<<10) * 8 * bitmapChunk
	s.claim("buffer that a bitmap of 64 KiB addresses", "16 GB", "%.1f GB (%.0f GB would take 512 KiB)", small/1e9,
		8*small/1e9).arithmetic()
	fit := state[len(state)-1].Y / math.Exp2(float64(most)) * 8
	s.claim("state a chunk, before the first loss", "1 bit", "%.2f bit", fit).agrees(within(1, 1.05), fit)
	s.claim("buffer whose state fits the LLC, before the first loss", "about 50 GB", "%.1f GB",
		fits/fit/1e9).agrees(near(50), fits/fit/1e9)
	s.says("%.2f bit a chunk before the first loss, so %.1f GB by 1.5 MB", fit, fits/fit/1e9)
	return nil
}

// stateOf returns the bytes that a rank's core allocates for an Allgather of some chunks a rank. It is the least of a
// few attempts, as other code in the process may allocate meanwhile.
func stateOf(ranks, chunks int) uint64 {
	least := uint64(math.MaxUint64)
	for range 5 {
		c := multicast.New(multicast.Config{Size: ranks, Chunk: bitmapChunk, Chains: 1, Subgroups: 1, Cutoff: 1})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := c.Post(0, multicast.Op{Collective: wire.Allgather, Bytes: chunks * bitmapChunk}); err != nil {
			panic(err) // the sizes above are allowed
		}
		runtime.ReadMemStats(&after)
		least = min(least, after.TotalAlloc-before.TotalAlloc)
	}
	return least
}
