package switchd

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"time"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
)

const (
	// leastDelay is the least time of a round trip until everybody has had a turn on a core. With 4
	// ranks and a switch on 2 cores, 64 MiB a rank took 166 ms with it at 40 Gbit/s, 203 ms with a
	// quarter, and 195 ms with four times as much: then the slots no longer fit the cache.
	leastDelay = 500 * time.Microsecond
	// grain is what chunks are a multiple of where they are long enough: a cache line.
	grain = 64
	// shares bounds into how many parts the window of a Reduce is cut where there are tracks. Each must still
	// fill a link for the time that acknowledgements take, which wait where contributions do.
	shares = 2
	// mostStripes bounds the stripes of a job that has tracks: each takes a socket a member.
	mostStripes = 128
)

// stripes returns how many a job has: one for each worker in each track, as far as that goes.
func stripes(workers, ranks int) int {
	tracks := innetwork.TracksFor(ranks)
	if tracks == 1 {
		return workers
	}
	return tracks * min(workers, mostStripes/tracks)
}

// chunk returns the largest that all paths to the members carry.
func (j *job) chunk() int {
	chunk := j.server.cfg.Chunk
	for _, m := range j.members {
		chunk = min(chunk, m.chunk)
	}
	if chunk >= grain {
		return chunk &^ (grain - 1)
	}
	return chunk &^ 7
}

// shape is what the memory of a stripe depends on.
func (j *job) shape(t innetwork.Terms) innetwork.StageConfig {
	return innetwork.StageConfig{Terms: t, Members: len(j.members), Reproducible: j.reproducible}
}

// affordable is how much slot memory the job may take, in bytes.
func (j *job) affordable() int64 {
	return min(j.server.cfg.JobMemory, j.server.memory.free(j.key.secret))
}

// room is how many bytes of chunks a stripe can hold at this switch, and below,
// from each member.
func (j *job) room() int {
	one := j.shape(innetwork.Terms{Chunk: 8, Slots: 1, Wide: true})
	room := int(j.affordable()) / j.width / innetwork.MemoryFor(&one) * 8
	for _, m := range j.members {
		if m.room > 0 {
			room = min(room, m.room)
		}
	}
	return room
}

// delay is the longest round trip to a member.
func (j *job) delay() time.Duration {
	delay := leastDelay
	for _, m := range j.members {
		delay = max(delay, m.peer.Delay())
	}
	return delay
}

// terms returns what the root of a tree grants the job: as many slots as the
// product of rate and delay takes, within what memory and the queues of the
// members hold.
func (j *job) terms() (innetwork.Terms, error) {
	t := innetwork.Terms{
		Job: rand.Uint64() | 1, Ranks: j.ranks, Stripes: j.width, Tracks: innetwork.TracksFor(j.ranks), Chunk: j.chunk(),
		First: rand.Uint32(),
	}
	if t.Chunk < 8 {
		return t, fmt.Errorf("the paths to the members carry chunks of %d bytes; want at least 8", t.Chunk)
	}
	for _, m := range j.members {
		t.Wide = t.Wide || m.peer.Child
	}
	share := min(t.Tracks, shares)
	least := ceilPower(max(2, 2*innetwork.BlockBytes/t.Chunk) / share)
	want := int(j.server.cfg.Rate/8*j.delay().Seconds()) / (j.width / t.Tracks) / share / t.Chunk
	for _, m := range j.members {
		// Of a window about one in P results is for the same rank.
		want = min(want, max(1, m.peer.Queue)*max(1, j.ranks/len(m.ranks)))
	}
	t.Slots = min(max(ceilPower(want), least), innetwork.MaxSlots)
	one := t
	one.Slots = 1
	shape := j.shape(one)
	cost := int64(innetwork.MemoryFor(&shape)) * int64(j.width)
	for int64(t.Slots)*cost > j.affordable() || t.Slots*t.Chunk > j.narrowest() {
		if t.Slots /= 2; t.Slots < least {
			j.server.counters.refuse(noMemory)
			return t,
				fmt.Errorf("the job needs at least %d bytes of slot memory (%d slots of %d bytes in each of %d stripes, %d "+
					"members); "+
					"the switch has %d bytes left and allows %d a job", int64(least)*cost, least, t.Chunk, j.width, len(j.members),
					j.server.memory.free(j.key.secret), j.server.cfg.JobMemory)
		}
	}
	t.Queue = j.queue(&t)
	return t, nil
}

// narrowest is the least room of the switches below.
func (j *job) narrowest() int {
	room := 1 << 62
	for _, m := range j.members {
		if m.room > 0 {
			room = min(room, m.room)
		}
	}
	return room
}

// queue is how many contributions the receive queue of each member surely holds.
func (j *job) queue(t *innetwork.Terms) int {
	queue := innetwork.MaxSlots
	for _, m := range j.members {
		for _, socket := range m.sockets {
			queue = min(queue, socket.Queue(t.Chunk+m.peer.Head()))
		}
	}
	return queue
}

// ceilPower returns the least power of two that is not below n.
func ceilPower(n int) int {
	if n <= 1 {
		return 1
	}
	return 1 << bits.Len(uint(n-1))
}

// start reserves the window, hands the stripes to the workers and tells the members the terms.
func (j *job) start(t innetwork.Terms, number int) error {
	shape := j.shape(t)
	size := innetwork.MemoryFor(&shape)
	total := int64(size) * int64(j.width)
	if total > j.server.cfg.JobMemory || !j.server.memory.take(j.key.secret, total) {
		j.server.counters.refuse(noMemory)
		return fmt.Errorf("the job needs %d bytes of slot memory; the switch has %d left and allows %d a job",
			total, j.server.memory.free(j.key.secret), j.server.cfg.JobMemory)
	}
	window, err := unix.Mmap(-1, 0, int(total), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		j.server.memory.give(j.key.secret, total)
		return fmt.Errorf("reserve %d bytes of slot memory: %w", total, err)
	}
	j.window = window
	shape.Owner = make([]int, j.ranks)
	for r := range shape.Owner {
		shape.Owner[r] = -1
	}
	for i, m := range j.members {
		for _, r := range m.ranks {
			shape.Owner[r] = i
		}
		for _, socket := range m.sockets {
			if err := socket.Mute(false); err != nil {
				return err
			}
		}
	}
	shape.Parent, shape.Number, shape.Timeout = j.parent != nil, number, j.timeout()
	for i := range j.width {
		shape.Stripe, shape.Memory = i, window[i*size:(i+1)*size]
		s, err := newStripe(j, shape)
		if err != nil {
			return err
		}
		j.stripes = append(j.stripes, s)
	}
	j.running = true
	j.timer.Stop()
	for i, s := range j.stripes {
		j.server.worker(i).add(s)
	}
	j.server.cfg.Log.Info("job started", "job", j.name, "epoch", j.epoch, "ranks", j.ranks, "members", len(j.members),
		"mode", mode(j.ranks, j.reproducible, j.encrypt), "chunk", t.Chunk, "slots", t.Slots, "queue", t.Queue, "stripes",
		j.width, "tracks", t.Tracks,
		"bytes", total)
	for i, m := range j.members {
		_ = m.peer.Ready(t, i) // its session notices if that does not arrive
	}
	return nil
}

// release takes the stripes from the workers and gives back sockets and memory.
func (j *job) release() {
	for i, s := range j.stripes {
		j.server.worker(i).remove(s)
	}
	for _, m := range j.members {
		m.close()
	}
	if j.window != nil {
		total := int64(len(j.window))
		if err := unix.Munmap(j.window); err != nil {
			j.server.cfg.Log.Error("give slot memory back", "error", err)
		}
		j.server.memory.give(j.key.secret, total)
	}
}

// worker returns the one that owns a stripe. A switch with fewer workers than its parent shares them.
func (s *Server) worker(stripe int) *worker { return s.workers[stripe%len(s.workers)] }
