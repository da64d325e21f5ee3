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
