package world

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/session"
	"github.com/torch-mcast/torch-mcast/internal/switchd"
)

// Node is an aggregation node.
type Node struct {
	Parent  int           // number of another node before it, plus one; 0: it has none
	Appears time.Duration // when it is started
	Workers int
	Secret  bool // it has secrets
}

// nodePort is where every node listens.
const nodePort = 7470

// secret is the secret of all nodes and ranks that have one.
const secret = "correct-horse-battery-staple"

// address is where a node is.
func (s *Scenario) address(node int) string {
	return fmt.Sprintf("%v:%d", hostAddr(s.Net.Ranks+node), nodePort)
}

// via is MCAST_SWITCH of a rank.
func (s *Scenario) via(rank int) (list string) {
	for i, way := range s.Ways {
		if i > 0 {
			list += ","
		}
		list += s.address(way[rank%len(way)])
	}
	return list
}

// trees reports whether there is a node with a parent.
func (s *Scenario) trees() bool {
	for _, n := range s.Nodes {
		if n.Parent > 0 {
			return true
		}
	}
	return false
}

// fitNodes mends what a change has left dangling, and reports whether the rest can be run.
func (s *Scenario) fitNodes() bool {
	s.Net.Nodes = len(s.Nodes)
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.Parent < 0 || n.Parent > i || n.Appears < 0 || n.Appears > time.Minute {
			return false
		}
		n.Workers = min(max(n.Workers, 1), 4)
		n.Secret = s.Nodes[0].Secret // of a tree all have the same
	}
	for _, way := range s.Ways {
		if len(way) == 0 {
			return false
		}
		for _, n := range way {
			if n < 0 || n >= len(s.Nodes) {
				return false
			}
		}
	}
	return len(s.Nodes) == 0 || len(s.Ways) > 0 && len(s.Ways) <= 4 && s.SwitchTimeout >= 500*time.Millisecond
}

// node is the process of a Node.
type node struct {
	s      *Scenario
	number int
	host   *Host
	log    *slog.Logger
	server *switchd.Server
	err    error
}

// start starts the process.
func (n *node) start() {
	me := n.s.Nodes[n.number]
	c := switchd.Config{
		Bind: fmt.Sprintf(":%d", nodePort), Workers: me.Workers, Rate: 1e9, Network: n.host.Sessions(), Log: n.log,
		Memory: 256 << 20, JobMemory: 64 << 20,
	}
	if me.Parent > 0 {
		c.Parent = n.s.address(me.Parent - 1)
	}
	if me.Secret {
		c.Secrets = session.Secrets{{Text: secret}}
	}
	for { // a supervisor starts again what finds no descriptor
		if n.server, n.err = switchd.Start(c); n.err == nil || !lacks(n.err) {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// run is the life of a node: it starts, suffers what events say, in their order, and ends with stop.
func (n *node) run(stop chan struct{}) {
	started := time.Now()
	until := func(at time.Duration) bool {
		select {
		case <-time.After(at - time.Since(started)):
			return true
		case <-stop:
			return false
		}
	}
	if !until(n.s.Nodes[n.number].Appears) {
		return
	}
	n.start()
	for _, e := range n.s.Events {
		if e.Rank != n.s.Net.Ranks+n.number || !until(e.At) {
			continue
		}
		if e.Deed == Stop {
			n.host.Stop(e.For)
			continue
		}
		n.end(e.Deed)
		if e.For == 0 || !until(e.At+e.For) {
			<-stop
			return
		}
		n.host.revive()
		n.start()
	}
	<-stop
	n.host.wake()
	ctx, cancel := context.WithTimeout(context.Background(), forgetting)
	defer cancel()
	if n.server != nil {
		n.err = n.server.Drain(ctx)
	}
	n.end(Leave)
}

// forgetting is how long a node may take, at most, to forget a job that all ranks have left, some
// without a farewell.
const forgetting = time.Minute

// end ends the process: politely, or as a deed says.
func (n *node) end(how Deed) {
	if how == Kill || how == Crash {
		n.host.Kill(how == Crash)
	}
	if n.server != nil {
		_ = n.server.Close() // the process may have been killed: then its sockets are gone
		n.server = nil
	}
}

// revive lets a process start again on a host.
func (h *Host) revive() {
	h.world.mu.Lock()
	defer h.world.mu.Unlock()
	h.gone, h.crashed = false, false
}

// wake ends a Stop.
func (h *Host) wake() {
	h.world.mu.Lock()
	defer h.world.mu.Unlock()
	h.resume()
}

// nodes starts all nodes of a scenario and returns what ends them.
func (s *Scenario) nodes(w *World, log *journal) (end func() error) {
	stop := make(chan struct{})
	var running sync.WaitGroup
	all := make([]*node, len(s.Nodes))
	for i := range s.Nodes {
		n := &node{s: s, number: i, host: w.Host(s.Net.Ranks + i)}
		n.log = log.of(w, 0).With("node", i)
		all[i] = n
		running.Go(func() { n.run(stop) })
	}
	return func() error {
		close(stop)
		running.Wait()
		for _, n := range all {
			if n.err != nil {
				return fmt.Errorf("node %d: %w", n.number, n.err)
			}
		}
		return nil
	}
}
