// Command soak runs many random scenarios of internal/simnet, or with -inc of
// internal/simnet/incnet, and names the seeds that fail. It exits with 1 if any does.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/simnet"
	"github.com/torch-mcast/torch-mcast/internal/simnet/incnet"
)

func main() {
	first := flag.Uint64("first", 1, "first `seed`")
	seeds := flag.Uint64("seeds", 10_000, "number of seeds")
	workers := flag.Int("workers", runtime.GOMAXPROCS(0), "seeds that run at the same time")
	verbose := flag.Bool("v", false, "describe every seed")
	nodes := flag.Bool("inc", false, "run the in-network Reduce-Scatter instead of the multicast protocol")
	flag.Parse()
	if *seeds < 1 || *workers < 1 {
		fmt.Fprintln(os.Stderr, "soak: -seeds and -workers must be at least 1")
		os.Exit(2)
	}
	var failed []uint64
	start := time.Now()
	rate := func(n int) float64 { return float64(n) / time.Since(start).Seconds() }
	if *nodes {
		var t incnet.Result
		failed = soak(*first, *seeds, *workers, incnet.Run, func(r *incnet.Result) (uint64, bool) {
			t.Add(r)
			if *verbose || r.Err != nil {
				fmt.Println(r.String())
			}
			return r.Scenario.Seed, r.Err == nil
		})
		fmt.Printf("%d seeds, %d operations (%d finished directly after a node was lost), %d datagrams, %d MB checked in %v: %.0f operations/s\n",
			*seeds, t.Ops, t.Direct, t.Datagrams, t.Bytes>>20, time.Since(start).Round(time.Millisecond), rate(t.Ops))
		fmt.Printf("lost %d, overflowed %d, sent again %d, sessions %d\n", t.Lost, t.Overflow, t.Resent, t.Sessions)
	} else {
		var t simnet.Result
		failed = soak(*first, *seeds, *workers, simnet.Run, func(r *simnet.Result) (uint64, bool) {
			t.Add(r)
			if *verbose || r.Err != nil {
				fmt.Println(r.String())
			}
			return r.Scenario.Seed, r.Err == nil
		})
		fmt.Printf("%d seeds, %d operations, %d chunks, %d MB checked in %v: %.0f operations/s, %.0f events/s\n",
			*seeds, t.Ops, t.Chunks, t.Bytes>>20, time.Since(start).Round(time.Millisecond), rate(t.Ops), rate(t.Events))
		fmt.Printf("lost %d, repaired %d, overflowed %d, dropped %d\n", t.Stats.Lost, t.Stats.Repaired, t.Overflow, t.Stats.Dropped)
	}
	if len(failed) > 0 {
		fmt.Printf("%d seeds failed: %v\n", len(failed), failed)
		os.Exit(1)
	}
	fmt.Println("no seed failed")
}

// soak runs the seeds, gives each result to book, and returns the seeds that
// failed according to it.
func soak[R any](first, seeds uint64, workers int, run func(seed uint64) R, book func(*R) (seed uint64, ok bool)) (failed []uint64) {
	next := make(chan uint64)
	results := make(chan R)
	var running sync.WaitGroup
	for range workers {
		running.Add(1)
		go func() {
			defer running.Done()
			for seed := range next {
				results <- run(seed)
			}
		}()
	}
	go func() {
		for s := range seeds {
			next <- first + s
		}
		close(next)
		running.Wait()
		close(results)
	}()
	for r := range results {
		if seed, ok := book(&r); !ok {
			failed = append(failed, seed)
		}
	}
	return failed
}
