package trace_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/trace"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// file is a trace as its readers see it.
type file struct {
	Base   int64 `json:"baseTimeNanoseconds"`
	Events []struct {
		Phase    string         `json:"ph"`
		Name     string         `json:"name"`
		Process  int            `json:"pid"`
		Row      int            `json:"tid"`
		At       float64        `json:"ts"`
		Duration float64        `json:"dur"`
		Args     map[string]any `json:"args"`
	} `json:"traceEvents"`
}

// written returns the trace of a group with one lane, at a moment of its clock.
func written(t *testing.T, lane *trace.Lane, now time.Duration) (f file) {
	t.Helper()
	remove := trace.Add(&trace.Group{
		Name: "feed", Rank: 1, Size: 2, Lanes: []*trace.Lane{lane}, Clock: func() time.Duration { return now },
	})
	defer remove()
	var b bytes.Buffer
	require.NoError(t, trace.Take().Write(&b))
	require.NoError(t, json.Unmarshal(b.Bytes(), &f))
	return f
}

// spans returns names, and when they begin and how long they are, in microseconds after the clock's 0.
func (f *file) spans(begin float64) (all []string) {
	for _, e := range f.Events {
		if e.Phase == "X" {
			all = append(all, fmt.Sprintf("%s %.0f+%.0f", e.Name, e.At-begin, e.Duration))
		}
	}
	return all
}

// begin returns when the first span of a name began.
func (f *file) begin(name string) float64 {
	for _, e := range f.Events {
		if e.Phase == "X" && e.Name == name {
			return e.At
		}
	}
	return 0
}

// post returns an operation that a lane remembers.
func post(l *trace.Lane, o trace.Operation, at time.Duration) *trace.Progress {
	s := &trace.Progress{Operation: o, Posted: at}
	l.Keep(s)
	return s
}

// end ends it.
func end(l *trace.Lane, s *trace.Progress, well bool, a overlap.Account, at time.Duration) {
	s.End(well, a, at)
	l.Keep(s)
}

func us(n int) time.Duration { return time.Duration(n) * time.Microsecond }

// TestPhases: an operation is a span, its phases are spans within it, one behind the other, and one that is in flight
// goes on to the moment of the trace. Operations that are in flight together have rows of their own.
func TestPhases(t *testing.T) {
	l := trace.NewLane("gather", []int{0, 1, 2, 7})
	n := post(l, trace.Operation{Name: "allgather", Bytes: 4096, Root: -1}, us(10))
	require.True(t, n.Enter(overlap.Peers, us(20)))
	require.True(t, n.Enter(overlap.Transfer, us(50)))
	require.False(t, n.Enter(overlap.Turn, us(60)), "it alternates with Transfer")
	require.False(t, n.Enter(overlap.Transfer, us(70)))
	require.True(t, n.Enter(overlap.Finish, us(80)))
	end(l, n, true, overlap.Account{overlap.Peers: us(30)}, us(100))
	second := post(l, trace.Operation{Name: "broadcast", Bytes: 8, Root: 3}, us(90))
	require.True(t, second.Enter(overlap.Peers, us(110)))
	l.Keep(second)
	third := post(l, trace.Operation{Name: "barrier", Root: -1}, us(120))
	end(l, third, false, overlap.Account{}, us(130))
	l.Repaired(2, us(40))
	l.Repaired(3, us(45))
	l.Waits(trace.Wait{For: "rank 1"}, us(20), us(30))
	l.Waits(trace.Wait{For: "rank 1"}, us(20), us(45))

	f := written(t, l, us(200))
	require.Equal(t, []string{
		"allgather 10+90", "queued 10+10", "peers 20+30", "transfer 50+30", "finish 80+20",
		"broadcast 90+110", "queued 90+20", "peers 110+90",
		"barrier 120+10", "queued 120+10",
		"waiting for rank 1 20+25",
	}, f.spans(f.begin("allgather")-10))

	rows, outcomes := map[string]int{}, map[string]any{}
	for _, e := range f.Events {
		require.Contains(t, []string{"X", "i", "M"}, e.Phase)
		require.Equal(t, os.Getpid(), e.Process)
		if e.Args["outcome"] != nil {
			rows[e.Name], outcomes[e.Name] = e.Row, e.Args["outcome"]
		}
		if e.Name == "allgather" {
			require.EqualValues(t, 4096, e.Args["bytes"])
			require.EqualValues(t, 30, e.Args["peers_us"])
		}
		if e.Name == "broadcast" && e.Args["outcome"] != nil {
			require.EqualValues(t, 7, e.Args["root"], "the rank, not its place in the lane")
		}
		if e.Name == "repair" {
			require.EqualValues(t, 5, e.Args["chunks"])
		}
	}
	require.Equal(t, map[string]any{"allgather": "done", "broadcast": "in flight", "barrier": "failed"}, outcomes)
	require.NotEqual(t, rows["allgather"], rows["broadcast"], "they overlap")
	require.Equal(t, rows["allgather"], rows["barrier"], "its row is free again")
}

// TestClock: moments are microseconds since the base, which is a multiple of Kineto's step, on the machine's clock.
func TestClock(t *testing.T) {
	l := trace.NewLane("gather", []int{0, 1, 2, 7})
	before := time.Now()
	end(l, post(l, trace.Operation{Name: "barrier", Root: -1}, us(0)), true, overlap.Account{}, us(0))
	f := written(t, l, us(0)) // so that 0 is now
	after := time.Now()
	require.Zero(t, f.Base%(7889238*int64(time.Second)))
	at := f.Base + int64(f.begin("barrier")*1000)
	require.GreaterOrEqual(t, at, before.UnixNano()-1000)
	require.LessOrEqual(t, at, after.UnixNano()+1000)
}

// TestWrap: the memory keeps the newest operations, and what becomes of an older one changes none of them.
func TestWrap(t *testing.T) {
	l := trace.NewLane("gather", []int{0, 1, 2, 7})
	const posted = 3000
	first := post(l, trace.Operation{Name: "barrier", Root: -1}, us(0))
	for i := range posted - 1 {
		end(l, post(l, trace.Operation{Name: "barrier", Root: -1}, us(i)), true, overlap.Account{}, us(i))
	}
	end(l, first, false, overlap.Account{}, us(5))
	f := written(t, l, us(posted))
	next := posted - 512 + 1
	for _, e := range f.Events {
		if e.Name == "barrier" {
			require.EqualValues(t, next, e.Args["number"])
			require.Equal(t, "done", e.Args["outcome"])
			next++
		}
	}
	require.Equal(t, posted+1, next)
}

// TestMemory: to remember allocates nothing.
func TestMemory(t *testing.T) {
	l := trace.NewLane("gather", []int{0, 1, 2, 7})
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		s := trace.Progress{Operation: trace.Operation{Name: "allgather", Bytes: 1, Root: -1}}
		l.Keep(&s)
		s.Enter(overlap.Peers, 1)
		l.Repaired(1, 2)
		end(l, &s, true, overlap.Account{}, 3)
	}))
}

// TestBusy: a trace knows whether anything was in flight.
func TestBusy(t *testing.T) {
	l := trace.NewLane("gather", []int{0, 1, 2, 7})
	defer trace.Add(&trace.Group{Lanes: []*trace.Lane{l}, Clock: func() time.Duration { return 0 }})()
	require.False(t, trace.Take().Busy())
	n := post(l, trace.Operation{Name: "barrier", Root: -1}, 0)
	require.True(t, trace.Take().Busy())
	end(l, n, false, overlap.Account{}, 1)
	require.False(t, trace.Take().Busy())
}

// TestNone: a lane that is nil remembers nothing.
func TestNone(*testing.T) {
	var l *trace.Lane
	l.Keep(&trace.Progress{})
	l.Repaired(1, 0)
	l.Waits(trace.Wait{}, 0, 0)
}

// TestFiles: the file is this user's alone, whole or not there, and the newest 32 of a directory stay.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	for i := range 40 {
		name := filepath.Join(dir, fmt.Sprintf("trace-host-%d.json", -i-1))
		require.NoError(t, os.WriteFile(name, nil, 0o600))
		at := time.Now().Add(-time.Duration(i+1) * time.Minute)
		require.NoError(t, os.Chtimes(name, at, at))
	}
	path, err := trace.Take().WriteTo(dir)
	require.NoError(t, err)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	trace.Tidy(dir)
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Len(t, left, 32)
	require.Contains(t, left, path)

}

// TestFileThatCannotBe: the error names the intended file and the reason; no part of the file stays.
func TestFileThatCannotBe(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "taken"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	require.NoError(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	for path, why := range map[string]string{
		"none/x.json": "no such file or directory", "file/x.json": "not a directory", "taken": "not a regular file",
		"pipe":                   "not a regular file",
		strings.Repeat("n", 300): "file name too long",
	} {
		path = filepath.Join(dir, path)
		err := trace.Take().WriteFile(path)
		require.ErrorContains(t, err, path+": "+why)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Len(t, left, 3)
}

// TestFullDisk: what does not fit is not there by half. It needs root, for a file system of a page.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a file system of a page needs root")
	}
	dir := t.TempDir()
	require.NoError(t, unix.Mount("none", dir, "tmpfs", 0, "size=4k"))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, 0)) })
	filler := filepath.Join(dir, "filler")
	require.NoError(t, os.WriteFile(filler, make([]byte, 4<<10), 0o600))
	path := filepath.Join(dir, "trace.json")
	require.EqualError(t, trace.Take().WriteFile(path), "write "+path+": no space left on device")
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Equal(t, []string{filler}, left)
	require.NoError(t, os.Remove(filler))
	require.NoError(t, trace.Take().WriteFile(path))
}

// TestSource: what another memory of the process has is in its trace, by rows and with its parts, and beside lanes.
func TestSource(t *testing.T) {
	zero := time.Now().UnixNano()
	at := func(n int) int64 { return zero + int64(us(n)) }
	defer trace.AddSource(func() []trace.Span {
		return []trace.Span{
			{Row: "messages", Name: "second", From: at(30), To: at(60)},
			{
				Row: "messages", Name: "first", From: at(10), To: at(40),
				Parts: []trace.Part{{"waiting", at(10), at(25)}, {"moving", at(25), at(40)}},
			},
			{Row: "others", Name: "third", From: at(20), To: at(90), Args: map[string]any{"bytes": 5}},
			{Row: "messages", Name: "fourth", From: at(40), To: at(50)},
		}
	})()
	l := trace.NewLane("gather", []int{0, 1, 2, 7})
	end(l, post(l, trace.Operation{Name: "barrier", Root: -1}, us(0)), true, overlap.Account{}, us(0))
	f := written(t, l, us(0))
	require.Equal(t, []string{
		"first 10+30", "waiting 10+15", "moving 25+15", "second 30+30", "fourth 40+10", "third 20+70",
	}, f.spans(f.begin("first") - 10)[2:])
	rows := map[string]int{}
	titles := map[int]any{}
	for _, e := range f.Events {
		rows[e.Name] = e.Row
		if e.Name == "thread_name" {
			titles[e.Row] = e.Args["name"]
		}
		if e.Name == "third" {
			require.EqualValues(t, 5, e.Args["bytes"])
		}
	}
	require.Equal(t, "messages", titles[rows["first"]])
	require.Equal(t, "messages", titles[rows["second"]])
	require.Equal(t, "others", titles[rows["third"]])
	require.Equal(t, rows["first"], rows["fourth"], "its row is free again")
	require.Equal(t, rows["first"], rows["waiting"])
	require.Len(t, map[int]bool{rows["first"]: true, rows["second"]: true, rows["third"]: true, rows["barrier"]: true}, 4)
}
