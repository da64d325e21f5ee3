package sim

import (
	"errors"
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// rank is one rank: its program, which posts the script's operations, and what its process does
// around the engine that ships: it drives it when something has happened or time has come, dies, and
// hears of others that are lost. It lives at a host.
type rank struct {
	*Job
	rank    int
	engine  *engine.Gather
	fabric  rankFabric
	ops     []*buffers     // posted operations, by number
	open    int            // posted and not done
	due     bool           // a post is scheduled
	timerAt multicast.Time // of the earliest timer, 0: none

	dead   bool
	gone   bool // has left after the last operation
	failed error
}

// A rank's wake-ups. A tag holds one in bits 0 to 7, the life in the next 8, and an argument.
const (
	wakePost = iota
	wakeTimer
	wakeLook
	wakeCrash
	wakeDetect
	wakeRestart
	wakeRelay
)

func (n *rank) at(at multicast.Time, wake, arg int) {
	n.net.At(at, n.rank, uint64(wake)|uint64(n.life)&0xff<<8|uint64(arg)<<16)
}

// begin makes the rank's side of a new communicator.
func (n *rank) begin() {
	*n = rank{Job: n.Job, rank: n.rank}
	n.fabric = rankFabric{n: n, broken: -1}
	cfg := n.Core
	cfg.Rank = n.rank
	if cfg.Lossless {
		n.fabric.held = make([][]*Datagram, cfg.Size)
	}
	g := engine.GatherConfig{Core: cfg, Job: n.number(), Fabric: &n.fabric, Clock: n.clock, Broken: n.cut, Relay: n.Relay}
	if n.Link != nil {
		g.Link = n.Link(n.rank)
	}
	n.engine = engine.NewGather(g)
}

// post schedules the next post.
func (n *rank) post(after multicast.Time) {
	n.due = true
	n.at(n.net.Now()+after, wakePost, 0)
}

// Wake does what the rank has put off, and what the scenario does to it.
func (n *rank) Wake(tag uint64) {
	wake, life, arg := tag&0xff, tag>>8&0xff, int(tag>>16)
	if wake == wakeRestart {
		n.restart(arg)
		return
	}
	if life != uint64(n.life)&0xff {
		return // so does a crash that a pause has put off until after the restart
	}
	if wake == wakeCrash {
		n.dead = true
		n.net.Crash(n.rank)
	}
	if n.dead || n.gone {
		return
	}
	switch wake {
	case wakePost:
		n.due = false
		n.postNext()
	case wakeTimer:
		if n.timerAt != multicast.Time(arg) {
			return // an earlier one has taken its place
		}
		n.timerAt = 0
		// What waits in its queue keeps it busy until then, and drives it.
		if until := n.net.Busy(n.rank); until > n.net.Now() {
			n.setTimer(until)
			return
		}
	case wakeLook:
		if n.fabric.lookAt != multicast.Time(arg) {
			return // likewise
		}
		n.fabric.lookAt = 0
	case wakeRelay:
		n.engine.Relay(arg == 1)
	case wakeDetect:
		n.hear(arg) // which wakes the engine
		return
	}
	n.drive()
}

// Receive takes a packet off the rank's queue.
func (n *rank) Receive(p *network.Packet) {
	m, message := p.Body.(*Message)
	if message && m.life == n.life {
		n.ranks[p.From].fabric.delivered(n.rank, m)
	}
	if n.dead || n.gone {
		return
	}
	n.fabric.inbox = append(n.fabric.inbox, received{int(p.From), p.Body})
	if n.Nap == 0 {
		n.drive()
	} else if len(n.fabric.inbox) == 1 {
		n.fabric.look(upTo(n.rng, n.Nap))
	}
}

// hear lets the rank's operations end: another rank is lost.
func (n *rank) hear(lost int) {
	if n.failed == nil {
		n.failed = fmt.Errorf("rank %d is lost", lost)
		n.engine.Fail(n.failed)
	}
}

// postNext posts the next operation of the script.
func (n *rank) postNext() {
	i := len(n.ops)
	if i == len(n.Ops) || n.failed != nil || n.open >= n.Depth {
		return
	}
	b := n.newBuffers(i, &n.Ops[i])
	n.ops = append(n.ops, b)
	n.open++
	if n.posted[i] == 0 {
		n.result.Spans[i].From = n.net.Now()
	}
	n.posted[i]++
	n.note(b, Barrier)
	w, err := n.engine.Submit(engine.GatherOp{Op: b.placed, Send: b.send, Recv: b.recv, Whole: b.Whole}, nil)
	if err != nil {
		n.fail("rank %d: post of operation %d: %v", n.rank, i, err)
		return
	}
	w.OnDone(func(err error) { n.complete(b, err) })
}

// drive lets the engine do what there is to do, and the program go on.
func (n *rank) drive() {
	n.fabric.round()
	n.engine.Work()
	n.fabric.settle()
	if n.Leave && n.open == 0 && len(n.ops) == len(n.Ops) && !n.fabric.refused {
		n.gone = true
	}
	if !n.gone && !n.due && len(n.ops) < len(n.Ops) && n.open < n.Depth && n.failed == nil {
		n.post(upTo(n.rng, n.Skew))
	}
	if at, ok := n.engine.Deadline(); ok && (n.timerAt == 0 || at < n.timerAt) {
		n.setTimer(at)
	}
	n.check()
}

func (n *rank) setTimer(at multicast.Time) {
	n.timerAt = max(at, n.net.Now())
	n.at(n.timerAt, wakeTimer, int(n.timerAt))
}

// complete checks a finished operation and takes its buffers back.
func (n *rank) complete(b *buffers, err error) {
	if b.done {
		n.fail("rank %d: operation %d is done twice", n.rank, b.index)
		return
	}
	b.done = true
	n.open--
	n.moved()
	switch {
	case err != nil:
		if n.failed == nil || !errors.Is(err, n.failed) {
			n.fail("rank %d: operation %d ends with %v", n.rank, b.index, err)
		}
	default:
		n.verify(b)
		n.markDone(b)
		n.result.Ops++
		n.result.Spans[b.index].To = n.net.Now()
	}
	if !n.Digest {
		poison(b.recv)
		poison(b.send)
	}
}

// operation returns what the script calls the operation of a number, or nil.
func (n *rank) operation(seq uint32) *buffers {
	if i := int(seq - n.Core.First); i < len(n.ops) {
		return n.ops[i]
	}
	return nil
}

// packets is how many packets of the network's MTU carry so much payload.
func (j *Job) packets(bytes int) int32 {
	if j.PacketBytes == 0 {
		return 1
	}
	return int32(max(1, (bytes+j.PacketBytes-1)/j.PacketBytes))
}

// shard returns which shard of an operation's buffer a root's chunks are of.
func (b *buffers) shard(root uint16) int {
	if b.Collective == wire.Broadcast {
		return 0
	}
	return int(root)
}
