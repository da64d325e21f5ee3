// Package advise reads traces that torch.profiler has written of a training over gloo, NCCL or torch-mcast, and says
// how much of a step is communication that nothing hides, what the step would take over torch-mcast, and what else to
// change: docs/how-to/advise.md. A trace becomes a Trace (read.go, build.go, match.go), traces of a job become a
// Report.
package advise

// Collective is one, as a rank saw it.
type Collective struct {
	Kind   Kind
	Posted int64 // nanoseconds of the trace's clock: when the training called it
	during span  // when it was under way
	Bytes  int64 // of the whole message: what all shards are together; 0: not known
	Type   string
	Size   int    // ranks of its group; 0: not known
	Group  string // what tells its group from others of its size; "": nothing
	Ranks  []int  // of its group; none: not known
	number int64  // the same at all ranks of its group; 0: not known
}

// Trace is what torch.profiler has seen of one rank.
type Trace struct {
	Path    string
	Host    string
	Backend string // gloo, nccl or mcast: over which most collectives went
	Rank    int    // -1: not known
	World   int    // ranks of the job, those of its largest group if the trace does not say; 0: not known
	Devices int    // GPUs that the process saw
	OnGPU   bool   // whether compute is a GPU's

	Collectives []Collective // in the order in which they began

	// Endless counts collectives without an end in the trace: in flight when torch.profiler stopped, or completed on
	// another thread than the caller's by a torch-mcast that did not yet record this in its events.
	Endless int

	steps   []span // whole steps, in order
	marked  bool   // whether the profiler was told of steps
	compute []span // when something was computed, disjoint and in order
}

// distributed is what Kineto writes of the job.
type distributed struct {
	Backend string `json:"backend"`
	Rank    *int   `json:"rank"`
	World   int    `json:"world_size"`
	Groups  []struct {
		Name  string `json:"pg_name"`
		Size  int    `json:"pg_size"`
		Ranks []int  `json:"ranks"`
	} `json:"pg_config"`
}
