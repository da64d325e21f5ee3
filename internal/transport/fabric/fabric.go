// Package fabric defines what moves bytes between ranks. A fabric is thin: it
// decides nothing about the protocol, it only carries what internal/protocol/multicast asks
// for. There are two kinds of traffic and one interface for each:
//
//   - Gather: multicast datagrams and control messages of Allgather and
//     Broadcast (internal/protocol/multicast drives it through internal/engine);
//   - Streams: ordered, reliable byte streams between pairs of ranks, for the
//     direct Reduce-Scatter (internal/protocol/direct; reducescatter.Streams drives it).
//
// Neither is safe for concurrent use, except for Wake, Stats and Close's
// documented exceptions: one agent at a time owns a fabric (pkg/overlap hands
// the ownership around). Nothing here blocks but Sleep.
//
// The words are in docs/reference/glossary.md.
package fabric

import (
	"errors"
	"fmt"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// ErrUnavailable marks errors that say what this machine lacks: see Unavailable.
var ErrUnavailable = errors.New("not available here")

type unavailableError struct{ error }

// Unwrap returns what the text was made of.
func (e unavailableError) Unwrap() error { return e.error }

// Is makes the error an ErrUnavailable.
func (unavailableError) Is(target error) bool { return target == ErrUnavailable }

// Unavailable is fmt.Errorf for an ErrUnavailable. The text names the missing thing and its remedy, and no more.
func Unavailable(format string, args ...any) error {
	return unavailableError{fmt.Errorf(format, args...)}
}

// PeerError is an error about a member. The group knows which rank that is.
type PeerError struct {
	Peer int // by place
	Err  error
}

// Error names the member by its place.
func (e *PeerError) Error() string { return fmt.Sprintf("member %d: %v", e.Peer, e.Err) }

// Unwrap returns the error itself, without the member.
func (e *PeerError) Unwrap() error { return e.Err }

// Run is a stretch of consecutive chunks of this rank's own shard, to be
// multicast. Head is the header of its first chunk; only PSN differs in the
// following ones.
type Run struct {
	Head  wire.Data
	Count int    // chunks, at least 1
	Shard []byte // the whole shard; chunk i is Shard[i*chunk : min((i+1)*chunk, len)]
	// Lent is set by Multicast where a device is yet to read chunks from Shard, by itself: Gather.Returned tells when
	// it has. 0: they were copied.
	Lent uint64
}

// Expected is a guess at the next arrivals: chunks PSN, PSN+1, ... PSN+Count-1 of Root's shard in operation Seq. A
// fabric may read straight to where they belong; a payload that was read to a wrong place is moved afterwards
// (Sink.Accept says where to). Dst is where chunk PSN goes, with room for Count chunks one after another (the last may
// be short, Dst ends there). An empty Dst means: no guess.
type Expected struct {
	Seq  uint32
	Root uint16
	PSN  uint32
	Dst  []byte
}

// Verdict is what a Sink wants done with a chunk that has arrived.
type Verdict uint8

const (
	// Drop throws the chunk away: it is a duplicate, of no operation here, or malformed.
	Drop Verdict = iota
	// Take has the payload brought to its place, and then Received called.
	Take
	// Hold leaves the chunk, and all from the same root behind it, where they are until a later
	// Poll, because this rank has not posted the operation yet. Only a Lossless fabric is told so.
	Hold
)

// Sink receives what a fabric's Poll finds. The engine implements it.
type Sink interface {
	// Expect returns the best guess at the next arrivals. next is the header of the first chunk to arrive, if the fabric
	// has looked at that, or nil.
	Expect(next *wire.Data) Expected
	// Accept says what becomes of a chunk with a payload of n bytes. It is asked for chunks that have arrived, once for
	// each unless it says Hold, and counts the chunks that it drops. With Take, dst is where the payload goes: n bytes
	// long, and valid until the next call of any method of the Sink. stream advises that a copy to dst go past the caches
	// (internal/transport/streamcopy), since the result is too large to be found there later.
	Accept(h *wire.Data, n int) (dst []byte, verdict Verdict, stream bool)
	// Received says that the payload of a chunk is where Accept said. It follows every Take,
	// before Accept is called again.
	Received(h *wire.Data)
	// Control delivers a control message that no chunk follows. Chunks of repairs and relays arrive
	// by Accept and Received with the header that wire.DataOf builds.
	Control(from int, m *wire.Control)
	// ReadEnded says that what Gather.Read has begun has ended: well, after Accept for each of its chunks, with the header
	// of a repair; or it has failed, and so will all later ones.
	ReadEnded(r *wire.Read, well bool)
	// Broken says that the path to a rank is lost for good; with the own rank, that the fabric is.
	Broken(rank int, err error)
}

// Gather carries the multicast protocol.
type Gather interface {
	// Traits says how the fabric behaves. It does not change.
	Traits() Traits
	// Multicast sends the first chunks of a run to every other rank and
	// returns how many it took; 0 means that there is no room now. It does
	// not keep Shard, unless it says so in Lent.
	Multicast(r *Run) int
	// Returned reports whether all memory up to this Lent has been read: Shard may change. If not, Sleep returns once it
	// has. Fabrics that copy embed Copies.
	Returned(lent uint64) bool
	// Readable returns where the right neighbour's device finds some bytes of this rank by itself, and the key by which it
	// may read them; false: they are to be sent. They must not change until that rank has said that it reads no more, or
	// until Withdraw. Fabrics that have no Reads in their Traits embed Copies.
	Readable(b []byte) (addr uint64, key uint32, ok bool)
	// Read begins to read chunks from the left neighbour's memory to the fabric's own; false: too many reads are under
	// way, and Sleep returns once one has ended. Sink.ReadEnded follows.
	Read(r *wire.Read) bool
	// Withdraw ends the reads of others from this rank; they fail there. It comes before this rank's memory is the
	// caller's again while others may still read.
	Withdraw()
	// Unsent returns about how many chunks Multicast took that have not left this host yet: those of the
	// latest runs. It may cost a system call.
	Unsent() int
	// Control queues a message to a rank that multicast.Neighbours lists, payload (a chunk that follows) included. It
	// reports whether the message was taken as a whole; if not, there was no room. It does not keep payload. A message for
	// a rank with a broken path is taken and thrown away: the Sink has been told by Broken, or is by the next Poll. A
	// message that the fabric cannot carry, to a rank that is no neighbour or with a payload on a Lossless fabric, is
	// thrown away, too: it is a defect of the caller, and the next Poll reports it by Broken.
	Control(to int, m *wire.Control, payload []byte) bool
	// Flush hands queued control messages to the operating system. Engines
	// call it once after a round of work.
	Flush()
	// Poll moves arrivals into the sink and returns how many chunks and messages they were: about budget at most, since a
	// batch that came in one piece is taken in one. more says that it may not have seen all that had arrived when it was
	// called.
	Poll(s Sink, budget int) (n int, more bool)
	Sleeper
	// Stats may be called from any goroutine.
	Stats() Stats
	Close() error
}

// Copies is for fabrics that lend nothing and have no ranks that read.
type Copies struct{}

// Returned is part of Gather.
func (Copies) Returned(uint64) bool { return true }

// Readable is part of Gather.
func (Copies) Readable([]byte) (addr uint64, key uint32, ok bool) { return 0, 0, false }

// Read is part of Gather.
func (Copies) Read(*wire.Read) bool { return false }

// Withdraw is part of Gather.
func (Copies) Withdraw() {}

// Registers is a Gather on a device that can send from the user's memory without a copy, and that lets the right
// neighbour read there.
type Registers interface {
	// Register makes memory of the host known to the device until release is called; the group's end calls it, too.
	// Until then memory stays mapped, and release has no operation in flight that uses it. Any goroutine may call
	// either. An error that wraps ErrUnavailable says why chunks go by a copy from there.
	Register(memory []byte) (release func() error, err error)
}

// Streams carries ordered bytes between pairs of ranks, in both directions at once.
type Streams interface {
	// Send puts as much of b as there is room for into the stream to a rank
	// and returns how many bytes that was. It does not keep b.
	Send(to int, b []byte) int
	// Peek returns bytes that have arrived from a rank and were not consumed yet, in order and contiguous, at most max.
	// Fewer than have arrived may be returned (a ring wraps), none only if there are none. The slice is valid until
	// Consume. It starts at an 8-byte boundary if the number of bytes consumed before is a multiple of 8.
	Peek(from, max int) []byte
	// Consume frees the first n bytes that Peek returned.
	Consume(from, n int)
	// Err returns why the stream to or from a rank is broken, or nil.
	Err(rank int) error
	Sleeper
	// Stats may be called from any goroutine.
	Stats() Stats
	Close() error
}

// Reader is Streams that can put what comes straight to where it belongs.
type Reader interface {
	Streams
	// Read moves bytes that have arrived from a rank, and were not consumed yet, to b, and consumes them. It returns how
	// many they were; 0: there are none.
	Read(from int, b []byte) int
}

// Watched is Streams that end the sleep of something else.
type Watched interface {
	Streams
	// Watch begins a Sleep that holds no thread: awake is called when something ends it. Watch returns the longest that it
	// lasts, at most d; 0: it is over already, and awake is not called. awake does not block, and may be called for no
	// reason.
	Watch(d time.Duration, awake func()) time.Duration
	// Unwatch calls that off; awake may be called once more. A Sleep follows, for what has come.
	Unwatch()
}

// Polled is Streams that can be asked before a Sleep.
type Polled interface {
	Streams
	// Ready reports whether a Sleep would end at once.
	Ready() bool
}

// Puller is Streams between processes that may read each other's memory.
type Puller interface {
	Streams
	// Pulls reports whether this rank and another one may read each other's memory.
	Pulls(from int) bool
	// Pull copies what lies at an address in the process of a rank. An error says that it cannot be read. ErrWithdrawn:
	// that rank has called Withdraw, and what was copied is perhaps something else.
	Pull(from int, address uintptr, to []byte) error
	// Withdraw ends the reads of others from this rank for good.
	Withdraw()
}

// ErrWithdrawn says that a rank lets nobody read its memory any more.
var ErrWithdrawn = errors.New("its operations have ended")

// Sleeper is how an idle agent waits for a fabric.
type Sleeper interface {
	// Sleep blocks until something arrived, or room became free for something
	// that was refused, or Wake was called (since the last Sleep began or ended), or
	// at most d has passed. It may return early for no reason.
	Sleep(d time.Duration)
	// Wake ends a Sleep, now or the next one. It may be called from any goroutine.
	Wake()
}

// Rester is a fabric that tells when something comes, so that nobody has to Sleep, and hold a thread, while no
// operation is in flight. The driver of the fabric calls both methods.
type Rester interface {
	// Rest has awake called once something arrives, and reports true; or false, and then only a Sleep sees arrivals. awake
	// does not block, and may be called for no reason or more than once. A fabric that keeps data nobody has asked for
	// need never call it.
	Rest(awake func()) bool
	// Rouse calls off a Rest, whether that has returned true or false; awake may be called once more.
	Rouse()
}

// Traits are the fixed properties of a fabric.
type Traits struct {
	Name  string // "udp", "shm", ...
	Chunk int    // payload bytes of a full chunk, at least 1
	// Window is how many chunks may be on their way to a receiver that does not read, before it
	// loses any, with one root sending. 0: the fabric never loses for want of room.
	Window int
	// Lossless fabrics deliver everything once and in order, and keep what the receiver has
	// not posted yet: the protocol then needs no barrier, repair or handshake.
	Lossless bool
	// Reads is how many chunks a Read takes at most; 0: there are no reads.
	Reads int
	// Notes tell, one sentence each, what the fabric does without and why
	// ("no UDP_GRO here (Linux has it since 5.0; a sandbox may not): datagrams are received one by one").
	Notes []string
}

// Stats count what a fabric moved, since it was opened.
type Stats struct {
	SentBytes      uint64 // multicast or stream bytes sent, headers included, each byte once
	ControlBytes   uint64 // control bytes sent, repairs included
	SentChunks     uint64
	ReceivedChunks uint64 // datagrams that passed the filter
	ReceivedBytes  uint64
	Dropped        uint64 // received and thrown away: duplicates, stale, malformed
	Forged         uint64 // of Dropped, those with a wrong tag or checksum
	Injected       uint64 // lost on purpose (fabric/fault)
	Misplaced      uint64 // read to the wrong place first, then moved
	Syscalls       uint64
	LentBytes      uint64   // of SentBytes, those a device has read from the user's memory by itself
	ReadChunks     uint64   // read from the left neighbour's memory, and needed
	ReadBytes      uint64   // of those
	Registrations  uint64   // of memory with a device, its own rings included
	Repairs        []uint64 // chunks that came by repair, duplicates included, by root; nil: there are no repairs

	// Multicast datagrams that the kernel did not take. They count as lost: repairs bring them.
	Refused     uint64 // by a firewall or a security policy (EPERM)
	Unreachable uint64 // the interface is down, or its address is gone (ENETUNREACH, ENETDOWN, EINVAL, ...)
	TooLarge    uint64 // the interface's MTU is smaller now than a datagram (EMSGSIZE)
}
