package main

/*
#include "mcast.h"
*/
import "C"

import (
	"unsafe"

	"github.com/torch-mcast/torch-mcast/internal/group"
)

// memories are what users have registered with groups; NCCL's registrations are in memory.go.
var memories = handles[*group.Memory]{what: "registration"}

//export goRegisterMemory
func goRegisterMemory(
	handle C.int64_t, at unsafe.Pointer, bytes C.size_t, out *C.int64_t, e *C.char, n C.size_t,
) C.int {
	err := func() (err error) {
		defer guard(&err)
		if out == nil {
			return argument("mcast_register: registration must not be NULL")
		}
		g, err := groups.get(int64(handle))
		if err != nil {
			return err
		}
		b, err := memory("mcast_register: memory", at, bytes)
		if err != nil {
			return err
		}
		m, err := g.Register(b)
		if err != nil {
			return err
		}
		*out = C.int64_t(memories.add(m))
		return nil
	}()
	return fail(err, e, n)
}

//export goDeregisterMemory
func goDeregisterMemory(handle C.int64_t, e *C.char, n C.size_t) C.int {
	m, err := memories.take(int64(handle))
	if err == nil {
		err = m.Release()
	}
	return fail(err, e, n)
}
