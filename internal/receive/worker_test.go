package receive

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const (
	slots, slotBytes = uint64(0x7f00_1234_0000), 4160
	buffer           = uint64(0x5500_0000_4000)
	chunkBytes, last = 4096, 100
	lkey, rkey, pair = 0x1122, 0x334455, 0xabcdef
)

// Opcodes of completions (MLX5_CQE_*).
const (
	request, writeImm, sendImm, sendInv, requestErr, responseErr = 0, 1, 3, 4, 13, 14
)

// arrival is a completion as the hardware writes it.
type arrival struct {
	opcode    byte
	immediate uint32
	bytes     uint32
	syndrome  byte
}

// receives says whether a completion is of a receive.
func (a *arrival) receives() bool {
	return a.opcode >= writeImm && a.opcode <= sendInv || a.opcode == responseErr
}

// nic is the hardware of a worker, and a plain model of the worker: it holds the state that must follow from the
// completions taken so far.
type nic struct {
	require.TestingT
	*Worker
	queues Queues
	op     Operation

	waiting   []arrival // completions that the worker has not taken
	written   uint32    // completions
	completed uint32    // receives
	taken     uint32    // completions, by the worker
	executed  uint32    // copies

	due      []uint32          // for every receive that was taken: the PSN to copy, or none
	signals  map[uint32]bool   // copies that ask for a completion: the last of each poll
	there    map[uint32]bool   // chunks
	placed   map[uint32]uint32 // by PSN: the receive that brought the chunk copied to its place
	next     uint32
	expected Counters
}

const none = math.MaxUint32

func open(t require.TestingT, q Queues) *nic {
	w, err := Open(q)
	require.NoError(t, err)
	return &nic{TestingT: t, Worker: w, queues: q, signals: map[uint32]bool{}}
}

func (n *nic) begin(o Operation) {
	require.NoError(n, n.Start(o))
	n.op, n.next = o, 0
	n.there, n.placed = map[uint32]bool{}, map[uint32]uint32{}
	for _, psn := range o.Others {
		n.there[psn] = true
	}
}

// posted returns how many receives were posted, from the 16 bits of the count that the record holds.
func (n *nic) posted() uint32 {
	record := binary.BigEndian.Uint32(n.Records[4:])
	require.LessOrEqual(n, record, uint32(0xffff))
	return n.completed + uint32(uint16(record)-uint16(n.completed))
}

// arrive writes a completion, if there is a receive for it and room: what there is none for is lost.
func (n *nic) arrive(a arrival) bool {
	if n.written-n.taken == uint32(n.queues.Completions) || a.receives() && n.posted() == n.completed {
		return false
	}
	if a.receives() {
		if n.queues.Staging != nil {
			require.Less(n, n.completed, n.executed+uint32(n.queues.Receives), "a slot is received to before it was copied")
		}
		n.completed++
	}
	at := int(n.written) % n.queues.Completions
	e := n.Entries[at*EntryBytes:][:EntryBytes]
	binary.BigEndian.PutUint32(e[36:], a.immediate)
	binary.BigEndian.PutUint32(e[44:], a.bytes)
	e[55] = a.syndrome
	binary.BigEndian.PutUint16(e[60:], uint16(n.completed-1))
	e[63] = a.opcode<<4 | byte(int(n.written)/n.queues.Completions&1)
	n.written++
	n.waiting = append(n.waiting, a)
	return true
}

// poll has the worker take completions, and the model as many.
func (n *nic) poll(limit int) {
	got := n.Poll(limit)
	require.Equal(n, min(limit, len(n.waiting)), got)
	before := len(n.due)
	for _, a := range n.waiting[:got] {
		n.take(a)
	}
	if len(n.due) != before {
		n.signals[uint32(len(n.due))-1] = true
	}
	n.waiting = n.waiting[got:]
	require.Equal(n, n.taken&0xffffff, binary.BigEndian.Uint32(n.Records))
}

// take is the model.
func (n *nic) take(a arrival) {
	n.taken++
	psn, wanted, header := a.immediate-n.op.Number, byte(sendImm), uint32(GRH)
	if n.queues.Staging == nil {
		wanted, header = writeImm, 0
	}
	length := n.op.ChunkBytes
	if psn == n.op.Chunks-1 {
		length = n.op.LastBytes
	}
	due := uint32(none)
	switch {
	case a.opcode == responseErr:
		if n.expected.Errors == 0 {
			n.expected.Syndrome = a.syndrome
		}
		n.expected.Errors++
	case a.opcode != wanted || a.immediate < n.op.Number || psn >= n.op.Chunks:
		n.expected.Foreign++
	case a.bytes != length+header:
		n.expected.Malformed++
	case n.there[psn]:
		n.expected.Duplicates++
	default:
		if psn != n.next {
			n.expected.Gaps++
		}
		n.there[psn], n.next, due = true, psn+1, psn
	}
	if a.receives() {
		n.due = append(n.due, due)
	}
}

// execute carries out up to so many of the copies that were posted, and completes what asks for it.
func (n *nic) execute(most int) {
	rung := uint32(len(n.due))
	require.Equal(n, rung&0xffff, binary.BigEndian.Uint32(n.Records[8:]))
	for ; most > 0 && n.executed != rung; most-- {
		i := n.executed % uint32(n.queues.Receives)
		d := n.Copies[i*CopyBytes:][:CopyBytes]
		psn := n.due[n.executed]
		require.Equal(n, uint16(n.executed), binary.BigEndian.Uint16(d[1:]))
		require.Zero(n, d[0])
		require.Equal(n, uint32(pair), binary.BigEndian.Uint32(d[4:])>>8)
		require.Equal(n, n.signals[n.executed], d[11] == 8, "copy %d asks for a completion", n.executed)
		if psn == none {
			require.Equal(n, []byte{0, 1}, []byte{d[3], d[7]}, "a nop")
		} else {
			require.Equal(n, []byte{8, 3}, []byte{d[3], d[7]}, "an RDMA Write")
			length := n.op.ChunkBytes
			if psn == n.op.Chunks-1 {
				length = n.op.LastBytes
			}
			require.Equal(n, n.op.Buffer+uint64(psn)*uint64(n.op.ChunkBytes), binary.BigEndian.Uint64(d[16:]))
			require.Equal(n, uint32(rkey), binary.BigEndian.Uint32(d[24:]))
			require.Equal(n, length, binary.BigEndian.Uint32(d[32:]))
			require.Equal(n, uint32(lkey), binary.BigEndian.Uint32(d[36:]))
			require.Equal(n, slots+uint64(i)*slotBytes+GRH, binary.BigEndian.Uint64(d[40:]))
			n.placed[psn] = n.executed
		}
		if n.executed++; n.executed == rung {
			require.Equal(n, d[:8], n.Doorbell, "the register has the head of the last copy")
		}
		if d[11] == 8 {
			binary.BigEndian.PutUint16(n.CopyEntry[60:], uint16(n.executed-1))
			n.CopyEntry[63] = request << 4
		}
	}
}

// check compares the worker with the model: from every PSN on, the first run of missing chunks, too.
func (n *nic) check() {
	n.expected.Missing = 0
	first, count := n.op.Chunks, uint32(0)
	for psn := n.op.Chunks - 1; psn < n.op.Chunks; psn-- {
		require.Equal(n, n.there[psn], n.Bitmap[psn/64]>>(psn%64)&1 == 1, "chunk %d", psn)
		switch {
		case n.there[psn]:
		case first == psn+1:
			n.expected.Missing++
			first, count = psn, count+1
		default:
			n.expected.Missing++
			first, count = psn, 1
		}
		f, c := n.Missing(psn)
		require.Equal(n, [2]uint32{first, count}, [2]uint32{f, c}, "missing from %d on", psn)
	}
	require.Equal(n, n.expected, n.Counters())
}

// finish takes all completions, executes all copies, and checks the outcome against the model.
func (n *nic) finish() {
	n.poll(math.MaxInt32)
	if n.queues.Staging != nil {
		n.execute(math.MaxInt32)
	}
	n.poll(math.MaxInt32) // learns of the copies
	n.check()
	require.Equal(n, n.expected.Missing == 0, n.Done())
	require.Equal(n, n.completed+uint32(n.queues.Receives), n.posted(), "every receive is posted again")
	if n.queues.Staging != nil {
		require.Len(n, n.placed, len(n.there)-len(n.op.Others))
	}
}

// draw is a completion of some kind: most are chunks, near the one that is due.
func (n *nic) draw(t *rapid.T) arrival {
	opcode, header := byte(sendImm), uint32(GRH)
	if n.queues.Staging == nil {
		opcode, header = writeImm, 0
	}
	psn := n.next
	switch rapid.SampledFrom([]string{"next", "next", "next", "near", "any", "beyond"}).Draw(t, "psn") {
	case "near":
		psn += uint32(rapid.IntRange(-3, 3).Draw(t, "offset"))
	case "any":
		psn = rapid.Uint32Range(0, n.op.Chunks-1).Draw(t, "psn")
	case "beyond":
		psn = n.op.Chunks + rapid.Uint32Range(0, 2).Draw(t, "beyond")
	}
	a := arrival{opcode: opcode, immediate: n.op.Number + psn, bytes: n.op.ChunkBytes + header}
	if psn == n.op.Chunks-1 {
		a.bytes = n.op.LastBytes + header
	}
	switch rapid.SampledFrom([]string{"", "", "", "", "", "", "", "opcode", "error", "bytes", "operation"}).Draw(t,
		"fault") {
	case "opcode":
		a.opcode = rapid.SampledFrom([]byte{request, writeImm, 2, sendImm, sendInv, 5, 6, 12, requestErr}).Draw(t, "opcode")
	case "error":
		a.opcode, a.syndrome = responseErr, rapid.Byte().Draw(t, "syndrome")
	case "bytes":
		a.bytes = rapid.SampledFrom([]uint32{0, 1, header, a.bytes - 1, a.bytes + 1, n.op.ChunkBytes + header,
			math.MaxUint32}).Draw(t, "bytes")
	case "operation":
		a.immediate = rapid.Uint32().Draw(t, "immediate")
	}
	return a
}

func queues(t *rapid.T) Queues {
	depth := 1 << rapid.IntRange(0, 5).Draw(t, "depth")
	q := Queues{Receives: depth, Completions: depth << rapid.IntRange(0, 2).Draw(t, "more")}
	if rapid.Bool().Draw(t, "staged") {
		q.Staging = &Staging{Slots: slots, SlotBytes: slotBytes, LKey: lkey, RKey: rkey, Pair: pair}
	}
	return q
}

// For any completions in any order the worker's state equals the model's, and no slot is overwritten before it was
// copied.
func TestWorkerIsTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := open(t, queues(t))
		defer n.Close()
		for range rapid.IntRange(1, 3).Draw(t, "operations") {
			o := Operation{
				Number: rapid.Uint32Range(0, 1<<20-1).Draw(t, "operation") << 12, Buffer: buffer,
				Chunks: rapid.Uint32Range(1, 200).Draw(t, "chunks"), ChunkBytes: chunkBytes, LastBytes: last,
			}
			for psn := range o.Chunks {
				if psn%64 >= 32 && rapid.IntRange(0, 3).Draw(t, "other") == 0 {
					o.Others = append(o.Others, psn)
				}
			}
			n.begin(o)
			for range rapid.IntRange(0, 100).Draw(t, "steps") {
				switch rapid.SampledFrom([]string{"arrive", "arrive", "arrive", "poll", "execute"}).Draw(t, "step") {
				case "arrive":
					n.arrive(n.draw(t))
				case "poll":
					n.poll(rapid.IntRange(0, 8).Draw(t, "limit"))
				case "execute":
					if n.queues.Staging != nil {
						n.execute(rapid.IntRange(0, 8).Draw(t, "copies"))
					}
				}
			}
			n.finish()
		}
	})
}

// Runs of missing chunks are found over words of the bitmap that are full, empty or neither.
func TestMissing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := open(t, Queues{Completions: 1, Receives: 1})
		defer n.Close()
		o := Operation{Chunks: rapid.Uint32Range(1, 400).Draw(t, "chunks"), ChunkBytes: 1, LastBytes: 1}
		for first := uint32(0); first < o.Chunks; first += 64 {
			word := rapid.OneOf(rapid.SampledFrom([]uint64{0, math.MaxUint64}), rapid.Uint64()).Draw(t, "word")
			for psn := first; psn < min(first+64, o.Chunks); psn++ {
				if word>>(psn%64)&1 == 1 {
					o.Others = append(o.Others, psn)
				}
			}
		}
		n.begin(o)
		n.check()
	})
}

// Counters and records go round: 16 bits of receives and copies several times, every ring very often.
func TestWorkerGoesOn(t *testing.T) {
	for _, staging := range []*Staging{nil, {Slots: slots, SlotBytes: slotBytes, LKey: lkey, RKey: rkey, Pair: pair}} {
		n := open(t, Queues{Completions: 64, Receives: 32, Staging: staging})
		const chunks, operation = 150_000, 5 << 18
		n.begin(Operation{Number: operation, Buffer: buffer, Chunks: chunks, ChunkBytes: chunkBytes, LastBytes: chunkBytes})
		a := arrival{opcode: sendImm, bytes: chunkBytes + GRH}
		if staging == nil {
			a = arrival{opcode: writeImm, bytes: chunkBytes}
		}
		for psn := uint32(0); psn < chunks; {
			for a.immediate = operation + psn; psn < chunks && n.arrive(a); a.immediate++ {
				psn++
			}
			n.poll(math.MaxInt32)
			if staging != nil {
				n.execute(math.MaxInt32)
			}
		}
		n.finish()
		require.True(t, n.Done())
		n.Close()
	}
}

// Copies that fail are seen, and no slot is free any more.
func TestCopiesThatFail(t *testing.T) {
	w, err := Open(Queues{Completions: 4, Receives: 4, Staging: &Staging{Slots: slots, SlotBytes: slotBytes}})
	require.NoError(t, err)
	defer w.Close()
	require.NoError(t, w.Start(Operation{Chunks: 1, ChunkBytes: 1, LastBytes: 1}))
	w.CopyEntry[55], w.CopyEntry[63] = 0x13, requestErr<<4
	require.Zero(t, w.Poll(1))
	require.Equal(t, uint8(0x13), w.Counters().CopySyndrome)
	require.Equal(t, uint32(4), binary.BigEndian.Uint32(w.Records[4:]))
}

// Impossible sizes of queues are refused with an error that says which are allowed.
func TestWhatIsRefused(t *testing.T) {
	for _, q := range []Queues{{}, {Completions: 8, Receives: 3}, {Completions: 4, Receives: 8},
		{Completions: 12, Receives: 8}, {Completions: 1 << 16, Receives: 1 << 16}} {
		_, err := Open(q)
		require.ErrorContains(t, err, "allowed are powers of two")
	}
	w, err := Open(Queues{Completions: 8, Receives: 8})
	require.NoError(t, err)
	defer w.Close()
	require.ErrorContains(t, w.Start(Operation{ChunkBytes: 1, LastBytes: 1}), "allowed are 1 to")
	require.ErrorContains(t, w.Start(Operation{Chunks: 1, ChunkBytes: 1, LastBytes: 2}), "allowed are 1 to")
	require.ErrorContains(t, w.Start(Operation{Chunks: 5, ChunkBytes: 1, LastBytes: 1, Number: 4}), "PSNs of 5 chunks")
}
