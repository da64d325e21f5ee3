package experiment

import (
	"io"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/lab/programs"
)

// Options say how experiments are done. Where one is left out, each experiment has its own default.
type Options struct {
	Dir      string          // where NAME.ndjson and NAME[-suffix].svg go
	Hosts    []int           // how many, for one point each
	Ranks    []int           // on each host, one number for each of Hosts or one for all
	Rates    []float64       // of a host's link, bits per second; 0: unlimited
	Bytes    []int           // of a rank's shard
	Computes []time.Duration // of a layer, for the experiment explain
	Losses   []float64       // shares of frames
	Peers    []string        // of Peers
	Cases    []string        // parts of names of faults and troubles, for the experiments doctor and explain; nil: all
	Rounds   int             // each measures every peer once; 0: DefaultRounds
	MTU      int             // 0: 9000
	Burst    int             // of a link, bytes; 0: what passes in 2 ms, at least 4 frames
	TCP      string          // congestion control of hosts, such as reno; empty: the machine's
	Limit    time.Duration   // of one run of one peer; 0: DefaultLimit

	Programs   programs.Paths
	Repository string    // directory that has benchmarks/ and .venv/; empty: here
	Text       io.Writer // gets tables and remarks; nil: nobody
	// Step is told what the experiment is doing; nil: nobody is told.
	Step func(what string)
}

// Defaults of Options.
const (
	DefaultRounds = 5
	DefaultLimit  = 3 * time.Minute
	defaultMTU    = 9000
)
