package world

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// lacks reports whether a process had no descriptor left.
func lacks(err error) bool { return errors.Is(err, syscall.EMFILE) }

// Report is what a run came to.
type Report struct {
	Err     error         // the first violation of a law
	Calls   int           // calls that succeeded, one a rank
	Through int           // of them, reductions that went through a switch
	Joins   []error       // of the ranks, from joining
	Virtual time.Duration // how long the run took
	Lost    int           // packets that were lost on purpose
	Reads   int           // of a neighbour's memory
	Log     string        // what the ranks said, and who waits for what if they hang
}

// Play runs a scenario in a bubble of its own and checks the laws.
func Play(t *testing.T, s *Scenario) (r Report) {
	defer func() {
		if p := recover(); p != nil {
			r.Err = fmt.Errorf("panic: %v", p)
			r.Log += waiting()
		}
	}()
	var p pulse
	defer p.watch(func() {
		fmt.Fprintf(os.Stderr, "seed %d is busy without end: %v\n%s", s.Seed, s, waiting())
		os.Exit(1)
	})()
	if announce {
		fmt.Fprintf(os.Stderr, "seed %d begins\n", s.Seed)
	}
	synctest.Test(t, func(*testing.T) { r = s.play(&p) })
	return r
}

// announce has Play say which seed it begins: a panic in a goroutine of the product ends the program.
var announce bool

// look is how often operations are looked at that should have ended.
const look = 500 * time.Millisecond

// play is Play within the bubble.
func (s *Scenario) play(p *pulse) (rep Report) {
	w := New(s.Net, s.Faults...)
	defer p.start()()
	var log journal
	end := s.nodes(w, &log)
	ranks := make([]*rank, s.Net.Ranks)
	var running sync.WaitGroup
	for i := range ranks {
		r := &rank{s: s, number: i, host: w.Host(i), log: log.of(w, i), steps: make([]outcome, s.steps()), before: -1}
		r.ctx, r.cancel = context.WithCancel(context.Background())
		defer r.cancel()
		ranks[i] = r
		running.Go(r.run)
	}
	stop := make(chan struct{})
	for _, e := range s.Events {
		if s.node(e.Rank) {
			continue
		}
		switch e.Deed {
		case Kill, Stop:
			go ranks[e.Rank].suffer(&e, stop)
		case Crash: // the host loses power, with all ranks on it
			for _, r := range s.beside(e.Rank) {
				go ranks[r].suffer(&e, stop)
			}
		}
	}
	ended := make(chan struct{})
	go func() {
		running.Wait()
		close(ended)
	}()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for over := false; !over; {
		select {
		case <-ended:
			over = true
		case <-tick.C:
			if rep.Err = s.late(ranks, time.Since(w.start)); rep.Err != nil {
				rep.Log = log.String() + waiting()
				for _, r := range ranks {
					r.depart()
					w.Host(r.number).Kill(true)
					r.cancel()
				}
				over = true
				<-ended
			}
		}
	}
	rep.Virtual, rep.Lost = time.Since(w.start), w.Lost()
	rep.Reads = w.reads
	close(stop)
	failed := end()
	time.Sleep(look) // of who accepts connections and had no descriptor
	for _, r := range ranks {
		rep.Calls += r.ops
		rep.Through += r.through
		rep.Joins = append(rep.Joins, r.steps[0].err)
	}
	if rep.Err == nil {
		rep.Err = errors.Join(failed, s.law(ranks), w.trespassed())
		rep.Log = log.String()
	}
	return rep
}

// suffer does to a rank what an event says.
func (r *rank) suffer(e *Event, stop chan struct{}) {
	select {
	case <-time.After(e.At):
	case <-stop:
		return
	}
	if e.Deed == Stop {
		r.host.Stop(e.For)
		return
	}
	r.depart()
	r.host.Kill(e.Deed == Crash)
	r.cancel()
}

// waiting lists the goroutines of this bubble, which says who waits for what.
func waiting() string {
	b := make([]byte, 4<<20)
	b = b[:runtime.Stack(b, true)]
	var out strings.Builder
	for g := range bytes.SplitSeq(b, []byte("\n\n")) {
		if bytes.Contains(g, []byte("synctest bubble")) {
			out.Write(g)
			out.WriteString("\n\n")
		}
	}
	return out.String()
}

// journal keeps what the ranks say.
type journal struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write takes a line.
func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.String()
}

// of returns the logger of a rank, in the time of the world.
func (j *journal) of(w *World, _ int) *slog.Logger {
	return slog.New(slog.NewTextHandler(j,
		&slog.HandlerOptions{Level: slog.LevelInfo, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Duration("at", time.Since(w.start))
			}
			return a
		}}))
}
