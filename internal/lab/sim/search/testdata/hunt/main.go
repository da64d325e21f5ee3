// Command hunt soaks one kind of scenario and exits with 1 if one fails.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/search"
)

func main() {
	var l search.Limits
	in := flag.Bool("inc", false, "the in-network Reduce-Scatter")
	flag.Uint64Var(&l.First, "first", 1, "first `seed`")
	flag.Uint64Var(&l.Seeds, "seeds", 0, "number of seeds")
	flag.DurationVar(&l.Time, "time", 0, "how long to search")
	flag.IntVar(&l.Shrink.Runs, "runs", 0, "most runs to shrink")
	flag.Parse()
	l.Shrink.Time = 30 * time.Second
	soak := search.Multicast.Soak
	if *in {
		soak = search.InNetwork.Soak
	}
	t, failed, err := soak(l, nil)
	fmt.Println(t.String())
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	if failed != nil {
		fmt.Println(failed.String())
		os.Exit(1)
	}
}
