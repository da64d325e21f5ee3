package main

/*
#include "plugin.h"
*/
import "C"

import (
	"encoding/json"
	"slices"
	"sync"
)

// communicator is the tuner's decision for one of NCCL's communicators, as
// mcast_communicators writes it.
type communicator struct {
	ID                   int64  `json:"id"`
	Ranks                uint64 `json:"ranks"`
	Nodes                uint64 `json:"nodes"`
	CollNet              bool   `json:"collnet"`
	Why                  string `json:"why"`                  // not
	Paired               bool   `json:"paired"`               // another one of the same ranks has CollNet
	AllgatherFrom        uint64 `json:"allgather_from"`       // bytes in total; 0: never
	ReduceScatterFrom    uint64 `json:"reduce_scatter_from"`  // bytes in total; 0: never
	AllgatherAloneFrom   uint64 `json:"allgather_alone_from"` // where no Reduce-Scatter runs beside it; 0: never
	AllgatherAloneTo     uint64 `json:"allgather_alone_to"`   // 0: no bound
	AllgatherWindows     uint64 `json:"allgather_windows"`
	ReduceScatterWindows uint64 `json:"reduce_scatter_windows"`

	tuner     *C.struct_tuner
	connected *C.struct_connected
}

// ask notes what the tuner decides now.
func (c *communicator) ask() {
	facts := C.tuner_facts_now(c.tuner)
	c.Paired = bool(facts.agreed.paired)
	c.AllgatherFrom = uint64(C.tuner_from(&facts, C.NCCL_ALLGATHER))
	c.ReduceScatterFrom = uint64(C.tuner_from(&facts, C.NCCL_REDUCE_SCATTER))
	facts.agreed.paired = false
	c.AllgatherAloneFrom = uint64(C.tuner_from(&facts, C.NCCL_ALLGATHER))
	c.AllgatherAloneTo = uint64(C.tuner_in_flight(&facts, C.NCCL_ALLGATHER))
}

// communicators holds the communicators that have a tuner now, oldest first.
var communicators struct {
	sync.Mutex
	all []communicator
}

//export goCommunicatorAdd
func goCommunicatorAdd(
	ranks, nodes C.size_t, why *C.char, tuner *C.struct_tuner, connected *C.struct_connected,
) C.int64_t {
	c := communicator{
		ID:        nextHandle.Add(1),
		Ranks:     uint64(ranks),
		Nodes:     uint64(nodes),
		CollNet:   why == nil,
		tuner:     tuner,
		connected: connected,
	}
	if why != nil {
		c.Why = C.GoString(why)
	}
	communicators.Lock()
	defer communicators.Unlock()
	communicators.all = append(communicators.all, c)
	return C.int64_t(c.ID)
}

//export goCommunicatorRemove
func goCommunicatorRemove(id C.int64_t) {
	communicators.Lock()
	defer communicators.Unlock()
	communicators.all = slices.DeleteFunc(communicators.all, func(c communicator) bool { return c.ID == int64(id) })
}

//export goCommunicators
func goCommunicators(buf *C.char, capacity C.size_t, length *C.size_t, e *C.char, n C.size_t) C.int {
	err := func() (err error) {
		defer guard(&err)
		communicators.Lock()
		defer communicators.Unlock()
		now := append([]communicator{}, communicators.all...) // empty is [] and not null
		for i := range now {
			c := &now[i]
			if c.Why == "" {
				c.ask()
			}
			if c.connected == nil {
				continue
			}
			c.AllgatherWindows = uint64(C.connected_windows(c.connected, C.NCCL_ALLGATHER))
			c.ReduceScatterWindows = uint64(C.connected_windows(c.connected, C.NCCL_REDUCE_SCATTER))
			if c.CollNet && !bool(C.connected_still(c.connected)) {
				c.CollNet, c.Why = false, "NCCL has closed its CollNet, or could not register its buffers"
			}
		}
		b, err := json.Marshal(now)
		if err != nil {
			return err
		}
		return text("mcast_communicators", b, buf, capacity, length)
	}()
	return fail(err, e, n)
}
