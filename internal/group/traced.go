package group

import (
	"context"
	"log/slog"

	"github.com/torch-mcast/torch-mcast/internal/live"
	"github.com/torch-mcast/torch-mcast/internal/trace"
)

// traced makes the memory of a lane, unless MCAST_TRACE is off.
func (g *Group) traced(lane string) *trace.Lane {
	if g.agreed.Settings.Trace == "off" {
		return nil
	}
	l := trace.NewLane(lane)
	g.trace = append(g.trace, l)
	return l
}

// record has the group in the traces of this process.
func (g *Group) record() {
	if len(g.trace) > 0 {
		g.unrecord = g.observer.record(&trace.Group{
			Name: g.agreed.Name(), Rank: g.agreed.Rank, Size: g.agreed.Size, Lanes: g.trace, Clock: g.clock,
		})
	}
}

// failure is a fault and what this process did last before it.
type failure struct {
	*Fault
	trace *trace.Trace
}

// takeTrace keeps what this process did last, where a fault is one that somebody will look into. It does so before
// operations end, so that they are as the fault has found them.
func (g *Group) takeTrace(f *Fault) {
	if f.Kind == Closed || f.Rank == g.agreed.Rank && f.Kind == Left || g.agreed.Settings.Trace == "off" {
		return
	}
	// At the end of a job ranks leave one after the other: nobody minds who waits for nothing.
	if t := g.observer.takeTrace(func(t *trace.Trace) bool { return f.Kind != Left || t.Busy() }); t != nil {
		g.failure.Store(&failure{f, t})
	}
}

// writeTrace writes it at the end of the group's life, and says where. A file system may be slow: nobody who waits for
// an operation waits for that.
func (g *Group) writeTrace() {
	f := g.failure.Swap(nil) // nobody else needs it
	if f == nil {
		return
	}
	path, err := g.observer.writeTrace(g.agreed.Settings.Trace, f.trace)
	switch {
	case err != nil:
		level := slog.LevelInfo
		if g.agreed.Settings.Trace != "auto" { // somebody waits for it
			level = slog.LevelWarn
		}
		g.log.Log(context.Background(), level, "no trace was written", "error", err)
	case path != "":
		g.log.Warn("the group has failed; what this process did last is in the trace, for ui.perfetto.dev", "error", f.Fault, "trace", path)
	}
}

// DumpAtSignal writes what this process did last where MCAST_TRACE says, since SIGUSR2 has come, and tells where that is.
func DumpAtSignal(where string, log *slog.Logger) {
	path, err := WriteTrace(where, trace.Take())
	if err != nil {
		log.Warn("no trace was written at SIGUSR2", "error", err)
		return
	}
	log.Warn("SIGUSR2: what this process did last is in the trace, for ui.perfetto.dev", "trace", path)
}

// WriteTrace writes a trace where MCAST_TRACE says, unless that is off, and returns the path of the file.
func WriteTrace(where string, t *trace.Trace) (path string, err error) {
	if where == "off" {
		return "", nil
	}
	if where == "auto" {
		where = ""
	}
	directory, err := live.Make(where)
	if err != nil {
		return "", err
	}
	path, err = t.WriteTo(directory)
	if err == nil && where == "" {
		trace.Tidy(directory)
	}
	return path, err
}
