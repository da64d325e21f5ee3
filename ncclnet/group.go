package main

/*
#include <stdlib.h>
#include "mcast.h"
extern char **environ;
*/
import "C"

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/group"
)

// MCAST_BLOB_MAX is group.MaxBlob, or this does not compile.
var _ = [1]struct{}{}[C.MCAST_BLOB_MAX-group.MaxBlob]

// endpoint is what mcast_open leaves for mcast_join or mcast_close_endpoint.
type endpoint struct {
	*group.Endpoint
	size int
}

var (
	endpoints = handles[*endpoint]{what: "endpoint"}
	groups    = handles[*group.Group]{what: "group"}
)

//export goOpen
func goOpen(
	rank, size C.int, options *C.char, blob unsafe.Pointer, capacity C.size_t, length *C.size_t, out *C.int64_t, e *C.char,
	n C.size_t,
) C.int {
	err := func() (err error) {
		defer guard(&err)
		if length == nil || out == nil {
			return argument("mcast_open: len and endpoint must not be NULL")
		}
		over, err := parseOptions(options)
		if err != nil {
			return err
		}
		settings, err := config.Load(environment, over)
		if err != nil {
			return argument("%v", err)
		}
		warnUnknown(func(warning string) { group.Logger(&settings).Warn(warning, "rank", int(rank)) })
		ep, err := group.Open(group.Options{Rank: int(rank), Size: int(size), Settings: settings})
		if err != nil {
			return err
		}
		traceOnSignal(&settings)
		b := ep.Blob()
		*length = C.size_t(len(b))
		dst, err := memory("mcast_open: blob", blob, capacity)
		if err == nil && len(dst) < len(b) {
			err = argument("mcast_open: blob holds %d bytes; %d are needed, MCAST_BLOB_MAX (%d) are always enough", len(dst),
				len(b), group.MaxBlob)
		}
		if err != nil {
			ep.Close()
			return err
		}
		copy(dst, b)
		*out = C.int64_t(endpoints.add(&endpoint{ep, int(size)}))
		return nil
	}()
	return fail(err, e, n)
}

// environ is C's environment, as environment sees it.
func environ() (all []string) {
	for at := C.environ; at != nil && *at != nil; at = (**C.char)(unsafe.Add(unsafe.Pointer(at), unsafe.Sizeof(*at))) {
		all = append(all, C.GoString(*at))
	}
	return all
}

// environment looks a variable up in C's environment. Go's own copy is from
// when the library was loaded; Python may have changed it since.
func environment(name string) (string, bool) {
	key := C.CString(name)
	defer C.free(unsafe.Pointer(key))
	v := C.getenv(key)
	if v == nil {
		return "", false
	}
	return C.GoString(v), true
}

// parseOptions reads lines of NAME=value.
func parseOptions(options *C.char) (map[string]string, error) {
	over := map[string]string{}
	if options == nil {
		return over, nil
	}
	for _, line := range strings.Split(C.GoString(options), "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok {
			return nil, argument("option %q is not of the form NAME=value", line)
		}
		over[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	return over, nil
}

//export goJoin
func goJoin(
	handle C.int64_t, blobs unsafe.Pointer, lens *C.size_t, timeoutMS C.int64_t, out *C.int64_t, e *C.char, n C.size_t,
) C.int {
	err := func() (err error) {
		defer guard(&err)
		ep, err := endpoints.take(int64(handle))
		if err != nil {
			return err
		}
		if out == nil || lens == nil {
			ep.Close()
			return argument("mcast_join: lens and group must not be NULL")
		}
		all := make([][]byte, ep.size)
		for r, l := range unsafe.Slice(lens, ep.size) {
			b, err := memory("mcast_join: blobs", blobs, l)
			if err != nil {
				ep.Close()
				return err
			}
			all[r] = append([]byte{}, b...)
			blobs = unsafe.Add(blobs, int(l))
		}
		ctx, cancel := context.Background(), context.CancelFunc(func() {})
		if timeoutMS > 0 {
			limit := time.Duration(timeoutMS) * time.Millisecond
			ctx, cancel = context.WithTimeoutCause(ctx, limit,
				fmt.Errorf("the time given to mcast_join, %v, is over: %w", limit, context.DeadlineExceeded))
		}
		defer cancel()
		g, err := ep.Join(ctx, all)
		if err != nil {
			return err
		}
		*out = C.int64_t(groups.add(g))
		return nil
	}()
	return fail(err, e, n)
}

//export goCloseEndpoint
func goCloseEndpoint(handle C.int64_t, e *C.char, n C.size_t) C.int {
	ep, err := endpoints.take(int64(handle))
	if err == nil {
		ep.Close()
	}
	return fail(err, e, n)
}

//export goInfo
func goInfo(handle C.int64_t, buf *C.char, capacity C.size_t, length *C.size_t, e *C.char, n C.size_t) C.int {
	err := func() (err error) {
		defer guard(&err)
		g, err := groups.get(int64(handle))
		if err != nil {
			return err
		}
		b, err := json.Marshal(g.Info())
		if err != nil {
			return err
		}
		return text("mcast_info", b, buf, capacity, length)
	}()
	return fail(err, e, n)
}

// text copies b and a terminating zero to a buffer of the caller's, and tells the length of both.
func text(call string, b []byte, buf *C.char, capacity C.size_t, length *C.size_t) error {
	if length != nil {
		*length = C.size_t(len(b) + 1)
	}
	dst, err := memory(call+": buf", unsafe.Pointer(buf), capacity)
	if err != nil {
		return err
	}
	if len(dst) < len(b)+1 {
		return argument("%s: buf holds %d bytes; %d are needed", call, len(dst), len(b)+1)
	}
	dst[copy(dst, b)] = 0
	return nil
}

//export goBadStats
func goBadStats(e *C.char, n C.size_t) C.int {
	return fail(argument("mcast_stats: stats must not be NULL and stats->size must be sizeof(struct mcast_stats)"), e, n)
}

//export goStats
func goStats(handle C.int64_t, out *C.struct_mcast_stats, e *C.char, n C.size_t) C.int {
	err := func() (err error) {
		defer guard(&err)
		g, err := groups.get(int64(handle))
		if err != nil {
			return err
		}
		s := g.Stats()
		copyStats(out, &s)
		return nil
	}()
	return fail(err, e, n)
}

//export goClose
func goClose(handle C.int64_t, e *C.char, n C.size_t) C.int {
	err := func() (err error) {
		defer guard(&err)
		g, err := groups.get(int64(handle))
		if err != nil {
			return err
		}
		err = g.Close()
		_, _ = groups.take(int64(handle)) // another caller may have been first
		return err
	}()
	return fail(err, e, n)
}

// closing is a group that is being closed.
type closing struct {
	done chan struct{}
	err  error // once done
}

func (c *closing) Done() <-chan struct{} { return c.done }

func (c *closing) WaitUntil(deadline time.Time) error {
	var late <-chan time.Time
	if !deadline.IsZero() {
		t := time.NewTimer(time.Until(deadline))
		defer t.Stop()
		late = t.C
	}
	select {
	case <-c.done:
		return c.err
	case <-late:
		return context.DeadlineExceeded
	}
}

//export goLeave
func goLeave(handle C.int64_t, work *C.int64_t, e *C.char, n C.size_t) C.int {
	err := func() (err error) {
		defer guard(&err)
		if work == nil {
			return argument("mcast_leave: work must not be NULL")
		}
		g, err := groups.get(int64(handle))
		if err != nil {
			return err
		}
		c := &closing{done: make(chan struct{})}
		go func() {
			defer close(c.done)
			defer guard(&c.err)
			c.err = g.Close()
			_, _ = groups.take(int64(handle))
		}()
		*work = C.int64_t(works.add(c))
		return nil
	}()
	return fail(err, e, n)
}

//export goAbort
func goAbort(handle C.int64_t, reason, e *C.char, n C.size_t) C.int {
	err := func() (err error) {
		defer guard(&err)
		if reason == nil {
			return argument("mcast_abort: reason must not be NULL")
		}
		g, err := groups.get(int64(handle))
		if err != nil {
			return err
		}
		err = g.Abort(C.GoString(reason))
		_, _ = groups.take(int64(handle))
		return err
	}()
	return fail(err, e, n)
}

// goExit leaves all groups as the process ends with a status.
//
//export goExit
func goExit(status C.int) {
	var leaving sync.WaitGroup
	groups.items.Range(func(_, item any) bool {
		g := item.(*group.Group)
		leaving.Go(func() {
			var err error // the process ends: there is nobody to tell
			defer guard(&err)
			if status != 0 {
				err = g.Abort(fmt.Sprintf("its program ended with exit status %d", status))
			} else {
				err = g.Close()
			}
		})
		return true
	})
	leaving.Wait()
}
