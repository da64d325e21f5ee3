package main

/*
#include "plugin.h"
#include "profiler.h"
*/
import "C"

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/trace"
)

// profiled is whether what NCCL does is in the traces of this process.
var profiled sync.Once

// goProfilerInit reports whether NCCL is to tell what it does: it is asked to by NCCL_PROFILER_PLUGIN, and MCAST_TRACE
// is not off. NCCL looks into this library for a profiler without having been asked, too.
//
//export goProfilerInit
func goProfilerInit() C.int {
	if asked, _ := environment("NCCL_PROFILER_PLUGIN"); !strings.Contains(asked, C.PLUGIN_NAME) {
		return 0
	}
	wanted := false
	result := verdict("profiler", func() error {
		s, err := config.Load(environment, nil)
		if err != nil {
			return argument("%v", err)
		}
		if wanted = s.Trace != "off"; wanted {
			profiled.Do(func() { trace.AddSource(whatNCCLDid) })
			traceOnSignal(&s)
		}
		return nil
	})
	if result != C.NCCL_SUCCESS || !wanted {
		return 0
	}
	return 1
}

// whatNCCLDid returns the operations and messages that are remembered.
func whatNCCLDid() (spans []trace.Span) {
	var operations [C.PROFILER_OPERATIONS]C.struct_profiler_operation
	var messages [C.PROFILER_MESSAGES]C.struct_profiler_message
	now := int64(C.profiler_copy(&operations[0], &messages[0]))
	zero := time.Now().UnixNano() - now // of CLOCK_MONOTONIC
	byNumber := map[C.uint64_t]*C.struct_profiler_operation{}
	for i := range operations {
		if o := &operations[i]; o.number != 0 {
			byNumber[o.number] = o
			spans = append(spans, operationSpan(o, zero, now))
		}
	}
	for i := range messages {
		if m := &messages[i]; m.number != 0 && m.is.posted != 0 {
			spans = append(spans, messageSpan(m, byNumber[m.operation], zero))
		}
	}
	return spans
}

func operationSpan(o *C.struct_profiler_operation, zero, now int64) trace.Span {
	s := trace.Span{
		Row:  fmt.Sprintf("NCCL, rank %d of %d of communicator %#x", o.rank, o.ranks, uint64(o.communicator)),
		Name: "NCCL " + C.GoString(&o.name[0]),
		From: zero + int64(o.posted),
		Args: map[string]any{
			"number": uint64(o.number), "count": uint64(o.count), "type": C.GoString(&o._type[0]), "channels": int(o.channels),
			"proxies": int(o.proxies), "outcome": "done",
		},
	}
	if o.algorithm[0] != 0 {
		s.Args["algorithm"], s.Args["protocol"] = C.GoString(&o.algorithm[0]), C.GoString(&o.protocol[0])
		s.Args["sequence"], s.Args["root"] = uint64(o.sequence), int(o.other)
	} else {
		s.Args["peer"] = int(o.other)
	}
	end := int64(o.ended)
	switch {
	case o.running > 0 || o.launched == 0:
		end = now
		s.Args["outcome"] = "in flight"
	case o.proxies == 0:
		end = int64(o.launched) // no network: when it ended is not known
		s.Args["outcome"] = "launched"
	}
	s.To = zero + end
	if o.begun != 0 {
		s.Parts = []trace.Part{{Name: "queued", From: s.From, To: zero + int64(o.begun)}, {Name: "proxies", From: zero + int64(o.begun), To: s.To}}
	}
	return s
}

var (
	overNames    = [...]string{"", C.MCAST_NET_TCP: "tcp", C.MCAST_NET_SHM: "shm", C.MCAST_NET_RDMA: "verbs"}
	outcomeNames = [...]string{
		C.MCAST_NET_IN_FLIGHT: "in flight", C.MCAST_NET_DONE: "done", C.MCAST_NET_FAILED: "failed", C.MCAST_NET_ABANDONED: "abandoned",
	}
)

func messageSpan(m *C.struct_profiler_message, o *C.struct_profiler_operation, zero int64) trace.Span {
	e := &m.is
	name, way := "receive", "from"
	if e.sending == 1 {
		name, way = "send", "to"
	}
	at := func(moment C.uint64_t) int64 { return zero + int64(moment) }
	s := trace.Span{
		Row:  fmt.Sprintf("NCCL messages %s %s, connection %d", way, C.GoString(&e.peer[0]), uint32(e.connection)),
		Name: name,
		From: at(e.posted), To: at(e.done),
		Args: map[string]any{
			"bytes": uint64(e.bytes), "sequence": uint32(e.sequence), "tag": int(e.tag), "over": overNames[e.over], "lanes": int(e.lanes),
			"outcome": outcomeNames[e.outcome],
		},
	}
	if o != nil {
		s.Args["operation"] = fmt.Sprintf("NCCL %s, number %d", C.GoString(&o.name[0]), uint64(o.number))
	}
	if e.begun != 0 && e.moved != 0 {
		s.Parts = []trace.Part{
			{Name: "waiting", From: at(e.posted), To: at(e.begun)}, {Name: "moving", From: at(e.begun), To: at(e.moved)},
			{Name: "ending", From: at(e.moved), To: at(e.done)},
		}
	}
	return s
}
