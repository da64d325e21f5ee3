package main

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

var errClosed = errors.New("unknown or closed handle")

// handles maps the integers that C holds to Go values. A number is never reused, so a stale one is
// noticed.
type handles[T any] struct {
	what  string
	items sync.Map // int64 -> T
}

// nextHandle is shared by all kinds, so that a handle of one kind is never
// taken for another.
var nextHandle atomic.Int64

func (h *handles[T]) add(v T) int64 {
	n := nextHandle.Add(1)
	h.items.Store(n, v)
	return n
}

func (h *handles[T]) get(n int64) (v T, err error) {
	x, ok := h.items.Load(n)
	if !ok {
		return v, fmt.Errorf("%s %d: %w", h.what, n, errClosed)
	}
	return x.(T), nil
}

// take is get, and the handle is gone.
func (h *handles[T]) take(n int64) (v T, err error) {
	x, ok := h.items.LoadAndDelete(n)
	if !ok {
		return v, fmt.Errorf("%s %d: %w", h.what, n, errClosed)
	}
	return x.(T), nil
}
