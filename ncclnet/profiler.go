package main

/*
#include "plugin.h"
#include "profiler.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/trace"
)

// profiled is whether what NCCL does is in the traces of this process.
var profiled sync.Once

// goProfilerInit reports whether to ask NCCL for events: NCCL_PROFILER_PLUGIN must name this library, and MCAST_TRACE
// not be off. NCCL looks into this library for a profiler even if NCCL_PROFILER_PLUGIN does not name it.
//
//export goProfilerInit
func goProfilerInit() C.int {
	if asked, _ := environment("NCCL_PROFILER_PLUGIN"); !strings.Contains(asked, C.PLUGIN_NAME) {
		return 0
	}
	wanted := false
	result := verdict("profiler", func() error {
		s, err := config.Load(environment, nil)
		if err != nil && !errors.Is(err, config.ErrInStore) { // a profiler needs no secret
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

// whatNCCLDid returns the operations and messages that are remembered. Operations that have not come to their turn
// would cover each other: of a communicator there is one span for all of them.
func whatNCCLDid() (spans []trace.Span) {
	var operations [C.PROFILER_OPERATIONS]C.struct_profiler_operation
	var messages [C.PROFILER_MESSAGES]C.struct_profiler_message
	now := int64(C.profiler_copy(&operations[0], &messages[0]))
	zero := time.Now().UnixNano() - now // of CLOCK_MONOTONIC
	byNumber := map[C.uint64_t]*C.struct_profiler_operation{}
	queued := map[string][]int64{} // when they were posted, by row
	for i := range operations {
		o := &operations[i]
		if o.number == 0 {
			continue
		}
		byNumber[o.number] = o
		row := fmt.Sprintf("NCCL, rank %d of %d of communicator %#x", o.rank, o.ranks, uint64(o.communicator))
		if o.begun == 0 && (o.proxies > 0 || o.launched == 0) {
			queued[row] = append(queued[row], int64(o.posted))
		} else {
			spans = append(spans, operationSpan(o, row, zero, now))
		}
	}
	for row, posted := range queued {
		spans = append(spans, trace.Span{
			Row: row + ": queued", Name: fmt.Sprintf("%d queued", len(posted)), From: zero + slices.Min(posted), To: zero + now,
		})
	}
	for i := range messages {
		if m := &messages[i]; m.number != 0 && m.is.posted != 0 {
			spans = append(spans, messageSpan(m, byNumber[m.operation], zero))
		}
	}
	return spans
}

func operationSpan(o *C.struct_profiler_operation, row string, zero, now int64) trace.Span {
	args := map[string]any{
		"number": uint64(o.number), "count": uint64(o.count), "type": C.GoString(&o._type[0]), "channels": int(o.channels),
		"proxies": int(o.proxies),
	}
	if o.algorithm[0] != 0 {
		args["algorithm"], args["protocol"] = C.GoString(&o.algorithm[0]), C.GoString(&o.protocol[0])
		args["sequence"], args["root"] = uint64(o.sequence), int(o.other)
	} else {
		args["peer"] = int(o.other)
	}
	from, to, outcome := int64(o.begun), int64(o.ended), "done"
	switch {
	case o.proxies == 0: // none of the network's: when it ends is not known
		from, to, outcome = int64(o.posted), int64(o.launched), "launched"
	case o.running > 0:
		to, outcome = now, "in flight"
	}
	args["outcome"], args["queued_us"] = outcome, float64(from-int64(o.posted))/1e3
	return trace.Span{Row: row, Name: "NCCL " + C.GoString(&o.name[0]), From: zero + from, To: zero + to, Args: args}
}

var (
	overNames    = [...]string{"", C.MCAST_NET_TCP: "tcp", C.MCAST_NET_SHM: "shm", C.MCAST_NET_RDMA: "verbs"}
	outcomeNames = [...]string{
		C.MCAST_NET_IN_FLIGHT: "in flight", C.MCAST_NET_DONE: "done", C.MCAST_NET_FAILED: "failed",
		C.MCAST_NET_ABANDONED: "abandoned",
	}
)

func nameOf(names []string, n C.uint8_t) string {
	if int(n) < len(names) {
		return names[n]
	}
	return "?"
}

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
			"bytes": uint64(e.bytes), "sequence": uint32(e.sequence), "tag": int(e.tag), "over": nameOf(overNames[:], e.over),
			"lanes":   int(e.lanes),
			"outcome": nameOf(outcomeNames[:], e.outcome),
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
