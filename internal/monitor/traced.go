package monitor

import (
	"context"
	"log/slog"

	"github.com/torch-mcast/torch-mcast/internal/live"
	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/trace"
)

// Traced makes the memory of a lane of some ranks, unless MCAST_TRACE is off.
func (m *Monitor) Traced(lane string, among *team.Members) *trace.Lane {
	if m.traceTo == "off" {
		return nil
	}
	l := trace.NewLane(lane, among.Ranks)
	m.traces = append(m.traces, l)
	return l
}

// record has the group in the traces of this process.
func (m *Monitor) record() {
	if len(m.traces) > 0 {
		m.unrecord = m.seen.record(&trace.Group{
			Name: m.plan.Name(), Rank: m.plan.Rank, Size: m.plan.Size, Lanes: m.traces, Clock: m.clock,
		})
	}
}

// failure is a fault and what this process did last before it.
type failure struct {
	*mesh.Fault
	trace *trace.Trace
}

// TakeTrace keeps what this process did last, where a fault is one that somebody will look into. It does so before
// operations end, so that they are as the fault has found them.
func (m *Monitor) TakeTrace(f *mesh.Fault) {
	if f.Kind == mesh.Closed || f.Rank == m.rank && f.Kind == mesh.Left || m.traceTo == "off" {
		return
	}
	// At the end of a job ranks leave one after the other: nobody minds who waits for nothing.
	if t := m.seen.takeTrace(func(t *trace.Trace) bool { return f.Kind != mesh.Left || t.Busy() }); t != nil {
		m.failure.Store(&failure{f, t})
	}
}

// writeTrace writes it at the end of the group's life, and says where. A file system may be slow: nobody who waits for
// an operation waits for that.
func (m *Monitor) writeTrace() {
	f := m.failure.Swap(nil) // nobody else needs it
	if f == nil {
		return
	}
	path, err := m.seen.writeTrace(m.traceTo, f.trace)
	switch {
	case err != nil:
		level := slog.LevelInfo
		if m.traceTo != "auto" { // somebody waits for it
			level = slog.LevelWarn
		}
		m.log.Log(context.Background(), level, "no trace was written", "error", err)
	case path != "":
		m.log.Warn("the group has failed; what this process did last is in the trace, for ui.perfetto.dev", "error", f.Fault,
			"trace", path)
	}
}

// DumpAtSignal writes what this process did last where MCAST_TRACE says, since SIGUSR2 has come, and tells where that
// is.
func DumpAtSignal(where string, log *slog.Logger) {
	path, err := writeTraceAt(where, trace.Take())
	if err != nil {
		log.Warn("no trace was written at SIGUSR2", "error", err)
		return
	}
	log.Warn("SIGUSR2: what this process did last is in the trace, for ui.perfetto.dev", "trace", path)
}

// writeTraceAt writes a trace where MCAST_TRACE says, unless that is off, and returns the path of the file.
func writeTraceAt(where string, t *trace.Trace) (path string, err error) {
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
