// Command bench prints how fast package reduce sums on this machine, beside a
// plain copy and beside what the machine allows (make bench-reduce).
//
// Speeds are in GB/s of bytes read and written, for one core: n sources and
// one destination of one size. The limit is what the fastest of several ways to
// read n sources and write one destination reaches if nothing is computed: in
// the order of a sum and slice by slice, with ordinary stores and with stores
// around the caches (see limits). It is measured between the sums, so that both
// have the same neighbours. Every figure is the median of all rounds. What
// counts is the time that the thread ran, not when others had the core.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"text/tabwriter"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// The measurements: all types with all numbers of sources, at both sizes.
var (
	types   = []reduce.Type{reduce.F32, reduce.F64, reduce.BF16, reduce.F16, reduce.I32}
	sources = []int{2, 4, 8}
	sizes   = []struct {
		name  string
		bytes int
	}{{"64 KiB a slice, in the cache", 64 << 10}, {"64 MiB a slice, in memory", 64 << 20}}
)

// enough is how many bytes a measurement moves at least.
const enough = 4 << 20

func main() {
	rounds := flag.Int("rounds", 9, "measure everything this many `times` and print the medians")
	flag.Parse()
	if flag.NArg() > 0 || *rounds < 1 {
		fmt.Fprintln(os.Stderr, "bench: takes no arguments, and -rounds of at least 1")
		os.Exit(2)
	}
	runtime.LockOSThread() // see ran
	fmt.Printf("Sums by %v, one core of %s/%s, GB/s read and written, medians of %d rounds.\n",
		reduce.Active(), runtime.GOOS, runtime.GOARCH, *rounds)
	for _, size := range sizes {
		fmt.Println()
		if err := measure(size.name, size.bytes, *rounds); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
	}
}

// measure prints the table for slices of one size.
func measure(name string, bytes, rounds int) error {
	most := slices.Max(sources)
	dst, srcs := touched(bytes), make([][]byte, most)
	for i := range srcs {
		srcs[i] = touched(bytes)
	}
	var copies samples
	sums := make([]samples, len(types)*len(sources))
	ways := limits()
	reached := make([]samples, len(ways)*len(sources))
	for range rounds {
		copies.add(1, bytes, func() { copy(dst, srcs[0]) })
		for i, n := range sources {
			for j, w := range ways {
				reached[i*len(ways)+j].add(n, bytes, func() { w.run(dst, srcs[:n]) })
			}
			for j, t := range types {
				sums[j*len(sources)+i].add(n, bytes, func() { reduce.Fold(dst, srcs[:n], t, reduce.Sum, 1) })
			}
		}
	}

	fmt.Printf("%s; a copy does %.1f\n", name, copies.median())
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "type\tsources\tsum\tlimit\tof limit\tof copy\t")
	best := make([]int, len(sources)) // of ways
	for i := range sources {
		of := reached[i*len(ways):][:len(ways)]
		for j := range of {
			if of[j].median() > of[best[i]].median() {
				best[i] = j
			}
		}
	}
	for j, t := range types {
		for i, n := range sources {
			sum, limit := sums[j*len(sources)+i].median(), reached[i*len(ways)+best[i]].median()
			fmt.Fprintf(table, "%v\t%d\t%.1f\t%.1f\t%.2f\t%.2f\t\n", t, n, sum, limit, sum/limit, sum/copies.median())
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for i, n := range sources {
		fmt.Printf("limit of %d sources: %s\n", n, ways[best[i]].name)
	}
	return nil
}

// samples are speeds in GB/s.
type samples []float64

// add measures f, which reads n slices of so many bytes and writes one.
func (s *samples) add(n, bytes int, f func()) {
	times := max(1, enough/(bytes*(n+1)))
	if times > 1 {
		f() // earlier work may have driven the slices from the cache
	}
	start := ran()
	for range times {
		f()
	}
	*s = append(*s, float64(times*(n+1)*bytes)/float64(ran()-start))
}

// ran returns the nanoseconds that this thread has run.
func ran() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(fmt.Sprintf("bench: this system has no clock for threads: %v", err))
	}
	return t.Nano()
}

// median sorts s.
func (s samples) median() float64 {
	slices.Sort(s)
	return s[len(s)/2]
}

// touched returns n bytes, a multiple of 8, in pages that are all in memory.
// They are normal numbers of every type.
func touched(n int) []byte {
	s := make([]byte, n)
	for i := range s {
		s[i] = 0x3c
	}
	return s
}
