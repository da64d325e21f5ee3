// Package worker is the rank that the catalogue of faults runs: it does collectives in rounds, checks every byte of
// their results, and writes its events as NDJSON. It exits well however its group ends: an error of an operation is a
// result here.
package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/group"
)

// Plan is what a rank is to do, the same for all ranks.
type Plan struct {
	Operations []string `json:"operations"` // of a round, in order; or Ring alone
	Bytes      int      `json:"bytes"`      // of a shard
	Rounds     int      `json:"rounds"`     // 0: until Stop exists
	Stop       string   `json:"stop"`       // path of a file; rank 0 looks for it after each round
	Acts       []Act    `json:"acts"`
}

// Act is something that one rank does besides, once.
type Act struct {
	Rank   int           `json:"rank"`
	Round  int           `json:"round"`
	Before string        `json:"before"` // "join", an operation of the round, or "close"
	Do     string        `json:"do"`     // see Acts
	For    time.Duration `json:"for"`    // of "wait"
	Bytes  uint64        `json:"bytes"`  // of "cramp"
}

// Acts are what Act.Do may be.
var Acts = []string{
	"wait",     // come later than the others
	"exit",     // end the process with status 3, without closing the group
	"panic",    // end the process by an exception
	"close",    // close the group while others go on
	"abort",    // end the group with a reason
	"disagree", // call the operation with another size than the others
	"stray",    // call the operation, which is a Broadcast, with another root than the others
	"cramp",    // allow its process no file or shared memory of more than Bytes
}

// Line is what a rank writes, one JSON object a line.
type Line struct {
	Rank    int       `json:"rank"`
	At      time.Time `json:"at"`
	Event   string    `json:"event"` // joined, round, error, act, closed
	Round   int       `json:"round,omitempty"`
	Op      string    `json:"op,omitempty"`
	Longest float64   `json:"longest_ms,omitempty"` // of the operations since the last line
	Wrong   uint64    `json:"wrong,omitempty"`      // elements, in all
	Error   string    `json:"error,omitempty"`
	Route   string    `json:"route,omitempty"` // of Reduce-Scatters: switch or direct
	Notes   []string  `json:"notes,omitempty"`
	// Descriptors that the group has left open, once it is closed.
	Descriptors int `json:"descriptors_left,omitempty"`
}

// rank is one that runs.
type rank struct {
	Plan
	rank, size int
	settings   config.Settings
	address    string // of the rendezvous
	out        *json.Encoder

	group   *group.Group
	round   int
	astray  int // how far this rank's next root is from the others'
	wrong   uint64
	longest time.Duration
	spoke   time.Time
}

// Run is the process of a rank that launch has started. The error says that it could not be one.
func Run(ctx context.Context, plan Plan, out io.Writer) error {
	r := &rank{Plan: plan, out: json.NewEncoder(out)}
	if err := r.check(os.LookupEnv); err != nil {
		return err
	}
	if r.passes() {
		return r.runRing(ctx)
	}
	before := descriptors()
	err := r.join(ctx)
	if err != nil {
		r.say(Line{Event: "error", Op: "join", Error: err.Error()})
		return nil
	}
	r.say(Line{Event: "joined", Notes: r.group.Info().Notes})
	if err := r.rounds(); err != nil {
		r.say(Line{Event: "error", Round: r.round, Op: err.op, Error: err.Error()})
	}
	info := r.group.Info()
	_ = r.act("close")
	closed := Line{
		Event: "closed", Round: r.round, Notes: info.Notes, Route: info.ReduceScatter, Longest: milliseconds(r.longest),
		Wrong: r.wrong,
	}
	if err := r.group.Close(); err != nil {
		closed.Error = err.Error()
	}
	closed.Descriptors = leftOpen(before)
	r.say(closed)
	return nil
}

// check reads the launcher's variables, and returns an error if the plan is wrong.
func (r *rank) check(lookup func(string) (string, bool)) (err error) {
	for name, to := range map[string]*int{"RANK": &r.rank, "WORLD_SIZE": &r.size} {
		text, _ := lookup(name)
		if *to, err = strconv.Atoi(text); err != nil {
			return fmt.Errorf("%s=%q: want a number: `mcast-lab testbed faults` starts this program", name, text)
		}
	}
	host, _ := lookup("MASTER_ADDR")
	port, _ := lookup("MASTER_PORT")
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return fmt.Errorf("MASTER_PORT=%q: want a port", port)
	}
	r.address = net.JoinHostPort(host, strconv.FormatUint(n+1, 10))
	if r.settings, err = config.Load(lookup, nil); err != nil {
		return err
	}
	for _, name := range r.Operations {
		if operations[name] == nil && !r.passes() {
			names := slices.Sorted(maps.Keys(operations))
			return fmt.Errorf("%q is no operation: want some of %s", name, strings.Join(names, ", "))
		}
	}
	for _, a := range r.Acts {
		if !slices.Contains(Acts, a.Do) {
			return fmt.Errorf("%q is no act: want one of %s", a.Do, strings.Join(Acts, ", "))
		}
	}
	if r.Bytes < 4 || r.Bytes%4 != 0 {
		return fmt.Errorf("a shard of %d bytes is not allowed: want a multiple of 4, at least 4", r.Bytes)
	}
	return nil
}

// passes says whether ranks pass messages round.
func (p *Plan) passes() bool { return len(p.Operations) == 1 && p.Operations[0] == Ring }

// join makes this process a rank of the group.
func (r *rank) join(ctx context.Context) error {
	_ = r.act("join")
	ctx, cancel := context.WithTimeout(ctx, r.settings.JoinTimeout)
	defer cancel()
	e, err := group.Open(group.Options{Rank: r.rank, Size: r.size, Settings: r.settings})
	if err != nil {
		return err
	}
	blobs, err := e.Rendezvous(ctx, r.address)
	if err != nil {
		e.Close()
		return err
	}
	r.group, err = e.Join(ctx, blobs)
	return err
}

// act does what the plan has for this rank here.
func (r *rank) act(before string) (disagree bool) {
	for _, a := range r.Acts {
		if a.Rank != r.rank || a.Round != r.round || a.Before != before {
			continue
		}
		r.say(Line{Event: "act", Round: r.round, Op: a.Do})
		switch a.Do {
		case "wait":
			time.Sleep(a.For)
		case "exit":
			os.Exit(3)
		case "panic":
			panic("an exception, as asked for")
		case "close":
			_ = r.group.Close()
		case "abort":
			_ = r.group.Abort("its loss is not a number")
		case "disagree":
			disagree = true
		case "stray":
			r.astray = 1
		case "cramp":
			if err := cramp(a.Bytes); err != nil {
				panic(err)
			}
		}
	}
	return disagree
}

// cramp bounds what files this process may make. Beyond, it gets EFBIG as others do where a limit on
// memory leaves no room; the runtime ignores the signal that comes with it.
func cramp(bytes uint64) error {
	limit := unix.Rlimit{Cur: bytes, Max: bytes}
	return unix.Setrlimit(unix.RLIMIT_FSIZE, &limit)
}

// sayEvery is the least time between two lines about rounds.
const sayEvery = 50 * time.Millisecond

func (r *rank) sayRound() {
	if time.Since(r.spoke) < sayEvery {
		return
	}
	l := Line{Event: "round", Round: r.round, Longest: milliseconds(r.longest), Wrong: r.wrong}
	if r.group != nil {
		l.Route = r.group.Info().ReduceScatter
	}
	r.say(l)
	r.longest = 0
}

func (r *rank) say(l Line) {
	l.Rank, l.At = r.rank, time.Now()
	r.spoke = l.At
	if err := r.out.Encode(l); err != nil {
		os.Exit(4) // nobody reads any more
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }

// descriptors returns how many this process has open.
func descriptors() int {
	open, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		return 0
	}
	return len(open)
}

// leftOpen returns by how many descriptors there are more than before, once all that are being closed are closed.
func leftOpen(before int) int {
	left := 0
	for range 50 {
		// The runtime's own poller, and what the resolver keeps, are no group's.
		const runtimes = 4
		if left = descriptors() - before - runtimes; left <= 0 {
			return 0
		}
		time.Sleep(10 * time.Millisecond)
	}
	return left
}
