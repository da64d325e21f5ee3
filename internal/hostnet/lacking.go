package hostnet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sys/unix"
)

// tryEvery is how often something is tried that this machine lacks the means for.
const tryEvery = 50 * time.Millisecond

// Lacking reports whether this machine, for now, lacks what a connection needs.
func Lacking(err error) bool {
	for _, e := range []error{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.EADDRNOTAVAIL} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// WhenThere opens something, as soon as there are descriptors for it: a process that is out of them
// is late, not dead. What else is short (memory, a port) may be so for ever. It waits as long as ctx
// lasts, and says in the log for what.
func WhenThere[T any](ctx context.Context, log *slog.Logger, what string, open func() (T, error)) (T, error) {
	for tries := 0; ; tries++ {
		v, err := open()
		if err == nil || !errors.Is(err, unix.EMFILE) && !errors.Is(err, unix.ENFILE) {
			return v, err
		}
		if tries == 0 {
			log.Warn("this machine lacks what a group needs; waiting until it is there", "for", what, "error", err)
		}
		select {
		case <-time.After(tryEvery):
		case <-ctx.Done():
			return v, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}
