// Package tunertest asks the tuner's rule (tuner_rule.c) in tests; the plugin does it in C. Go does not see that
// plugin.h has changed: after that, go clean -cache.
package tunertest

// #include "../plugin.h"
import "C"

// Facts are the facts that the tuner decides by: struct tuner_facts of plugin.h.
type Facts struct {
	Switched, Paired, Unicast, Direct, Chunks, Several bool
	Nodes, InFlight                                    int
	Allgather, ReduceScatter                           int // settings
}

// of returns the same facts for C.
func (f Facts) of() *C.struct_tuner_facts {
	c := C.struct_tuner_facts{nodes: C.size_t(f.Nodes), chunks: C.bool(f.Chunks), inflight: C.size_t(f.InFlight)}
	c.several = C.bool(f.Several)
	c.agreed.paired = C.bool(f.Paired)
	c.agreed.switched, c.agreed.multicast, c.agreed.direct = C.bool(f.Switched), C.bool(!f.Unicast), C.bool(f.Direct)
	c.from[C.NCCL_ALLGATHER], c.from[C.NCCL_REDUCE_SCATTER] = C.longlong(f.Allgather), C.longlong(f.ReduceScatter)
	return &c
}

// Wins is tuner_wins.
func (f Facts) Wins(reduceScatter bool, bytes int, registered bool) bool {
	function := C.int(C.NCCL_ALLGATHER)
	if reduceScatter {
		function = C.NCCL_REDUCE_SCATTER
	}
	return bool(C.tuner_wins(f.of(), function, C.size_t(bytes), C.bool(registered)))
}

// AllreduceLoses is tuner_loses for an Allreduce.
func (f Facts) AllreduceLoses(bytes int, registered bool) bool {
	return bool(C.tuner_loses(f.of(), C.NCCL_ALLREDUCE, C.size_t(bytes), C.bool(registered)))
}
