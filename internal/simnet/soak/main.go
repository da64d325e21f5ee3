// Command soak runs many random scenarios of internal/simnet and names the
// seeds that fail. It exits with 1 if any does.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/simnet"
)

func main() {
	first := flag.Uint64("first", 1, "first `seed`")
	seeds := flag.Uint64("seeds", 10_000, "number of seeds")
	workers := flag.Int("workers", runtime.GOMAXPROCS(0), "seeds that run at the same time")
	verbose := flag.Bool("v", false, "describe every seed")
	flag.Parse()
	if *seeds < 1 || *workers < 1 {
		fmt.Fprintln(os.Stderr, "soak: -seeds and -workers must be at least 1")
		os.Exit(2)
	}
	start := time.Now()
	failed, total := soak(*first, *seeds, *workers, *verbose)
	took := time.Since(start)
	fmt.Printf("%d seeds, %d operations, %d chunks, %d MB checked in %v: %.0f operations/s, %.0f events/s\n",
		*seeds, total.Ops, total.Chunks, total.Bytes>>20, took.Round(time.Millisecond),
		float64(total.Ops)/took.Seconds(), float64(total.Events)/took.Seconds())
	fmt.Printf("lost %d, repaired %d, overflowed %d, dropped %d\n", total.Stats.Lost, total.Stats.Repaired, total.Overflow, total.Stats.Dropped)
	if len(failed) > 0 {
		fmt.Printf("%d seeds failed: %v\n", len(failed), failed)
		os.Exit(1)
	}
	fmt.Println("no seed failed")
}

// soak runs the seeds and returns those that failed, and sums over all.
func soak(first, seeds uint64, workers int, verbose bool) (failed []uint64, total simnet.Result) {
	next := make(chan uint64)
	results := make(chan simnet.Result)
	var running sync.WaitGroup
	for range workers {
		running.Add(1)
		go func() {
			defer running.Done()
			for seed := range next {
				results <- simnet.Run(seed)
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
		total.Add(&r)
		if verbose || r.Err != nil {
			fmt.Println(r.String())
		}
		if r.Err != nil {
			failed = append(failed, r.Scenario.Seed)
		}
	}
	return failed, total
}
