package main

/*
#include "mcast.h"
*/
import "C"

import (
	"math"
	"unsafe"

	"github.com/torch-mcast/torch-mcast/internal/group"
)

// outputs are places for results that ranks of a host share.
var outputs = handles[*group.Output]{what: "output"}

//export goReserve
func goReserve(handle C.int64_t, bytes C.size_t, out *C.int64_t, e *C.char, n C.size_t) C.int {
	err := func() (err error) {
		defer guard(&err)
		if out == nil {
			return argument("mcast_reserve: output must not be NULL")
		}
		g, err := groups.get(int64(handle))
		if err != nil {
			return err
		}
		*out = 0
		if p := g.Reserve(int(min(bytes, math.MaxInt))); p != nil {
			*out = C.int64_t(outputs.add(p))
		}
		return nil
	}()
	return fail(err, e, n)
}

//export goPlace
func goPlace(output, timeoutMS C.int64_t, at *unsafe.Pointer, e *C.char, n C.size_t) C.int {
	err := func() (err error) {
		defer guard(&err)
		if at == nil {
			return argument("mcast_place: at must not be NULL")
		}
		p, err := outputs.get(int64(output))
		if err != nil {
			return err
		}
		mem, err := p.Wait(deadlineIn(timeoutMS))
		if err != nil {
			return err
		}
		if mem == nil {
			_, _ = outputs.take(int64(output))
		}
		*at = unsafe.Pointer(unsafe.SliceData(mem)) // mapped, not Go's
		return nil
	}()
	return fail(err, e, n)
}

//export goRelease
func goRelease(output C.int64_t) C.int {
	p, err := outputs.take(int64(output))
	if err == nil {
		p.Release()
	}
	return fail(err, nil, 0)
}
