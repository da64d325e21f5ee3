package main

/*
#include "plugin.h"
*/
import "C"

import "github.com/torch-mcast/torch-mcast/internal/config"

// goTuner tells from which sizes on, in bytes of the whole result or input,
// CollNet is worth it; 0: never.
//
//export goTuner
func goTuner(allgather, reduceScatter *C.size_t) C.nccl_result {
	return verdict("tuner init", func() error {
		s, err := config.Load(environment, nil)
		if err != nil {
			return argument("%v", err)
		}
		*allgather, *reduceScatter = C.size_t(s.TunerAllgather), C.size_t(s.TunerReduceScatter)
		return nil
	})
}
