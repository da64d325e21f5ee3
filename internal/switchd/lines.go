package switchd

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Anybody who may ask for jobs, without secrets everybody, causes lines in the log. They are limited to mostLines in
// linesTime, enough for all jobs that a switch may have to begin and end. Errors come from the switch itself: they are
// always written.
const (
	mostLines = 1000
	linesTime = 10 * time.Second
)

// boundLines returns a logger that leaves out lines beyond the limit, and then says how many they were.
func boundLines(log *slog.Logger) *slog.Logger {
	return slog.New(&bounded{log.Handler(), &lines{}})
}

// bounded is a handler of slog. Handlers made from it share its lines.
type bounded struct {
	slog.Handler
	lines *lines
}

// lines counts those of a time.
type lines struct {
	mu         sync.Mutex
	begun      time.Time
	said, left int
}

// next counts a line. It reports whether there is room for it, and how many were left out of a time that is over.
func (l *lines) next(now time.Time) (left int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.begun) >= linesTime {
		left = l.left
		l.begun, l.said, l.left = now, 0, 0
	}
	if l.said == mostLines {
		l.left++
		return 0, false
	}
	l.said++
	return left, true
}

// Handle implements slog.Handler.
func (b *bounded) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError {
		return b.Handler.Handle(ctx, r)
	}
	left, ok := b.lines.next(time.Now())
	if left > 0 {
		more := slog.NewRecord(r.Time, slog.LevelWarn, "lines were left out: too many at a time", r.PC)
		more.Add("lines", left)
		if err := b.Handler.Handle(ctx, more); err != nil {
			return err
		}
	}
	if !ok {
		return nil
	}
	return b.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (b *bounded) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &bounded{b.Handler.WithAttrs(attrs), b.lines}
}

// WithGroup implements slog.Handler.
func (b *bounded) WithGroup(name string) slog.Handler {
	return &bounded{b.Handler.WithGroup(name), b.lines}
}
