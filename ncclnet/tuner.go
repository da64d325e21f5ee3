package main

/*
#include "plugin.h"
*/
import "C"

import "github.com/torch-mcast/torch-mcast/internal/config"

// goTuner tells from which sizes on, in bytes of the whole result or input,
// CollNet is to be taken; 0: never, below 0: as the tuner's table says.
//
//export goTuner
func goTuner(allgather, reduceScatter *C.longlong) C.nccl_result {
	return verdict("tuner init", func() error {
		s, err := config.Load(environment, nil)
		if err != nil {
			return argument("%v", err)
		}
		*allgather, *reduceScatter = C.longlong(s.TunerAllgather), C.longlong(s.TunerReduceScatter)
		return nil
	})
}

// tunerFacts holds the facts that the tuner decides by: struct tuner_facts of plugin.h.
type tunerFacts struct {
	switched, unicast, direct, chunks, several bool
	nodes, inflight                            int
	allgather, reduceScatter                   int // settings
}

// of returns the same facts for C.
func (f tunerFacts) of() *C.struct_tuner_facts {
	c := C.struct_tuner_facts{nodes: C.size_t(f.nodes), chunks: C.bool(f.chunks), inflight: C.size_t(f.inflight)}
	c.several = C.bool(f.several)
	c.agreed.switched, c.agreed.multicast, c.agreed.direct = C.bool(f.switched), C.bool(!f.unicast), C.bool(f.direct)
	c.from[C.NCCL_ALLGATHER], c.from[C.NCCL_REDUCE_SCATTER] = C.longlong(f.allgather), C.longlong(f.reduceScatter)
	return &c
}

// wins is tuner_wins, for tests: C asks it for each operation.
func (f tunerFacts) wins(reduceScatter bool, bytes int, registered bool) bool {
	function := C.int(C.NCCL_ALLGATHER)
	if reduceScatter {
		function = C.NCCL_REDUCE_SCATTER
	}
	return bool(C.tuner_wins(f.of(), function, C.size_t(bytes), C.bool(registered)))
}

// allreduceLoses is tuner_loses for an Allreduce.
func (f tunerFacts) allreduceLoses(bytes int, registered bool) bool {
	return bool(C.tuner_loses(f.of(), C.NCCL_ALLREDUCE, C.size_t(bytes), C.bool(registered)))
}
