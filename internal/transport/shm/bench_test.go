package shm

import (
	"fmt"
	"io"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// Benchmarks start one process a rank and report what rank 0 measured, as the
// median of an operation in microseconds.
//
//	go test -run '^$' -bench . -benchtime 1x ./internal/transport/shm

const benchRanks = 4

func BenchmarkAllgather(b *testing.B) {
	for _, n := range []int{0, 1 << 10, 16 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20} {
		b.Run(fmt.Sprintf("%dKiB", n>>10), func(b *testing.B) { benchmark(b, "allgather", n) })
	}
}

func BenchmarkReduceScatter(b *testing.B) {
	for _, n := range []int{1 << 10, 16 << 10, 1 << 20, 16 << 20, 64 << 20} {
		b.Run(fmt.Sprintf("%dKiB", n>>10), func(b *testing.B) { benchmark(b, "reduce", n) })
	}
}

// BenchmarkCopy is the yardstick: as many processes copy 64 MiB each, all at once.
func BenchmarkCopy(b *testing.B) { benchmark(b, "copy", 64<<20) }

func benchmark(b *testing.B, role string, bytes int) {
	lay := DefaultLayout(benchRanks)
	overrideLayout(&lay)
	var median float64
	for range b.N {
		outs := runRanks(b, lay, role, fmt.Sprint(bytes))
		_, err := fmt.Sscan(outs[0], &median)
		require.NoError(b, err, "%q", outs[0])
	}
	b.ReportMetric(median, "us/op")
	b.ReportMetric(float64(bytes)/median/1e3, "GB/s")
	b.ReportMetric(0, "ns/op")
}

func rounds(bytes int) int { return min(20000, max(12, 256<<20/(bytes+1))) }

func init() {
	roles["allgather"] = func(w *Region, args []string, out io.Writer) error {
		var n int
		if _, err := fmt.Sscan(args[0], &n); err != nil {
			return err
		}
		p := newProbe(w)
		size := w.lay.Size
		shard, all := make([]byte, n), make([]byte, n*size)
		fill(shard, w.rank, 0)
		var times []float64
		for range rounds(n) {
			clear(all[:min(len(all), 64)])
			start := time.Now()
			if err := p.allgather(shard, all); err != nil {
				return err
			}
			times = append(times, float64(time.Since(start).Nanoseconds())/1e3)
		}
		for r := range size {
			if err := check(all[r*n:][:n], r, 0); err != nil {
				return err
			}
		}
		slices.Sort(times)
		_, err := fmt.Fprintln(out, times[len(times)/2], w.Gather().Stats())
		return err
	}
	roles["copy"] = func(w *Region, args []string, out io.Writer) error {
		var n int
		if _, err := fmt.Sscan(args[0], &n); err != nil {
			return err
		}
		src, dst := make([]byte, n), make([]byte, n)
		fill(src, w.rank, 0)
		var times []float64
		p := newProbe(w)
		for range 20 {
			if err := p.allgather(nil, []byte{}); err != nil {
				return err
			}
			start := time.Now()
			copy(dst, src)
			times = append(times, float64(time.Since(start).Nanoseconds())/1e3)
		}
		slices.Sort(times)
		_, err := fmt.Fprintln(out, times[len(times)/2])
		return err
	}
	roles["reduce"] = func(w *Region, args []string, out io.Writer) error {
		var n int
		if _, err := fmt.Sscan(args[0], &n); err != nil {
			return err
		}
		size, rank := w.lay.Size, w.rank
		in := make([]float32, n/4*size)
		for i := range in {
			in[i] = float32(rank + i%1000)
		}
		sum := make([]float32, n/4)
		var times []float64
		for range rounds(n) {
			start := time.Now()
			if err := reduceScatter(w.Streams(), rank, size, in, sum); err != nil {
				return err
			}
			times = append(times, float64(time.Since(start).Nanoseconds())/1e3)
		}
		for i, got := range sum {
			if want := float32(size*((rank*n/4+i)%1000) + size*(size-1)/2); got != want {
				return fmt.Errorf("element %d is %v, want %v", i, got, want)
			}
		}
		slices.Sort(times)
		_, err := fmt.Fprintln(out, times[len(times)/2], w.Streams().Stats())
		return err
	}
}

// reduceScatter sums this rank's part of all inputs, in rank order. It sends
// and sums in small steps, so that all streams flow at once.
func reduceScatter(s *Streams, rank, size int, in, sum []float32) error {
	const step = 64 << 10 // bytes
	n := len(sum) * 4
	bytes := func(f []float32) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(f))), len(f)*4) }
	raw, mine := bytes(in), in[rank*len(sum):][:len(sum)]
	var sent, got [MaxSize]int
	got[rank] = n
	sent[rank] = n
	limit := systest.Deadline()
	for summed, done := 0, 0; done < size-1 || summed < n; {
		work := 0
		for i := 1; i < size; i++ {
			to := (rank + i) % size
			if sent[to] < n {
				k := s.Send(to, raw[to*n+sent[to]:][:min(n-sent[to], 2*step)])
				sent[to] += k
				work += k
				if sent[to] == n {
					done++
				}
			}
		}
		for summed < n {
			k := min(step, n-summed)
			var parts [MaxSize][]byte
			for from := range size {
				if from != rank {
					parts[from] = s.Peek(from, k)
					k = min(k, len(parts[from])&^3)
				}
			}
			if k == 0 {
				break
			}
			dst := sum[summed/4:][:k/4]
			copy(dst, mine[summed/4:])
			for from := range size {
				if from == rank {
					continue
				}
				src := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(parts[from]))), k/4)
				addTo(dst, src)
				s.Consume(from, k)
			}
			summed += k
			work += k
		}
		if work == 0 {
			s.Sleep(100 * time.Millisecond)
			if time.Now().After(limit) {
				return fmt.Errorf("rank %d: %d of %d bytes summed", rank, summed, n)
			}
		}
	}
	return nil
}

func addTo(dst, src []float32) {
	src = src[:len(dst)]
	for i := range dst {
		dst[i] += src[i]
	}
}
