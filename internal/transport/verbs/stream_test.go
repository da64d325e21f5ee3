package verbs

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// line is one direction of a stream between two ranks without devices: messages and acknowledgements under way are in
// order, each at its own pace.
type line struct {
	t        *testing.T
	out      outbound
	in       inbound
	under    []message // written, not arrived
	acks     []message // arrived, completion not seen
	came     []message // arrived: completions that the receiver has not polled
	buffers  int       // that the device has
	own, far []byte
}

type message struct {
	start    uint64 // in the stream
	at, size int
	ack      uint32
}

func newLine(t *testing.T, ring int) *line {
	return &line{
		t: t, out: outbound{ring: uint64(ring)}, in: inbound{ring: uint64(ring)}, buffers: buffers, own: make([]byte, ring),
		far: make([]byte, ring),
	}
}

// content is byte i of every stream.
func content(i uint64) byte { return byte(i ^ i>>8 ^ i>>16) }

// send writes messages of up to n bytes in all, with acks of the other direction.
func (l *line) send(n int, back *line) (sent int) {
	for n > 0 {
		at, size := l.out.next(n)
		if size == 0 {
			break
		}
		for i := range size {
			l.own[at+i] = content(l.out.sent + uint64(i))
		}
		l.out.post(size)
		l.under = append(l.under, message{l.out.sent - uint64(size), at, size, back.in.takeAck()})
		n -= size
		sent += size
	}
	return sent
}

// tell has the receiver of back tell its sender, which this line leads to.
func (l *line) tell(back *line) {
	if back.in.ackDue() && l.out.spare() {
		l.out.post(0)
		l.under = append(l.under, message{ack: back.in.takeAck()})
	}
}

// arrive has the oldest message arrive: the bytes come from the own ring now, which nobody may have changed meanwhile.
func (l *line) arrive() {
	if len(l.under) == 0 {
		return
	}
	m := l.under[0]
	l.under = l.under[1:]
	copy(l.far[m.at:m.at+m.size], l.own[m.at:])
	l.buffers--
	require.GreaterOrEqual(l.t, l.buffers, 0, "a message finds no buffer")
	l.came = append(l.came, m)
	l.acks = append(l.acks, m)
}

// acknowledge has the sender see that the oldest message has arrived. The device might have had to repeat it until now.
func (l *line) acknowledge() {
	if len(l.acks) == 0 {
		return
	}
	m := l.acks[0]
	l.acks = l.acks[1:]
	for i := range m.size {
		if l.own[m.at+i] != content(m.start+uint64(i)) {
			require.Fail(l.t, "overwritten", "byte %d", m.start+uint64(i))
		}
	}
	l.out.complete()
}

// poll has the receiver see what has arrived.
func (l *line) poll(back *line) {
	for _, m := range l.came {
		require.NoError(l.t, l.in.arrive(uint32(m.size)))
		require.NoError(l.t, back.out.ack(m.ack))
		if l.in.owed >= ackMessages {
			l.buffers += l.in.owed
			l.in.owed = 0
		}
	}
	l.came = l.came[:0]
}

// consume consumes up to n bytes, in multiples of 8 unless the rest is less.
func (l *line) consume(n int) {
	at, have := l.in.piece()
	n = min(n, have)
	for i := range n {
		if l.far[at+i] != content(l.in.consumed+uint64(i)) {
			require.Fail(l.t, "wrong byte", "byte %d", l.in.consumed+uint64(i))
		}
	}
	l.in.consumed += uint64(n)
}

// TestStreamsNeverOverrun: for any order of events, no byte is overwritten before it is consumed and acknowledged, no
// message finds the device without a buffer, and all arrives.
func TestStreamsNeverOverrun(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		ring := []int{4 << 10, 64 << 10, 256 << 10}[seed%3]
		total := uint64(3*ring + rng.IntN(2*ring))
		most := []int{9, 700, 1 << 17}[seed/3%3] // bytes of a Send
		if most == 9 {
			total = uint64(rng.IntN(4000))
		}
		lines := [2]*line{newLine(t, ring), newLine(t, ring)}
		oneWay := seed%2 == 0
		steps := 0
		for ; ; steps++ {
			require.Less(t, steps, 400_000, "seed %d: it does not go on: %+v", seed, lines[0].out)
			if lines[0].in.consumed == total && (oneWay || lines[1].in.consumed == total) {
				break
			}
			d := rng.IntN(2)
			l, back := lines[d], lines[1-d]
			switch rng.IntN(5) {
			case 0:
				if left := total - l.out.sent; left > 0 && (!oneWay || d == 0) {
					l.send(1+rng.IntN(int(min(left, uint64(most)))), back)
				}
			case 1:
				l.arrive()
			case 2:
				l.poll(back)
				back.tell(l)
			case 3:
				l.consume(1 + rng.IntN(1<<17))
				back.tell(l)
			case 4:
				l.acknowledge()
				l.tell(back)
			}
		}
	}
}

// TestStreamsFull: a receiver that consumes nothing is sent a ring, or as many messages as there may be, and no more.
func TestStreamsFull(t *testing.T) {
	const ring = 128 << 10
	l, back := newLine(t, ring), newLine(t, ring)
	require.Equal(t, ring, l.send(1<<20, back))
	for range 4 {
		l.arrive()
		l.acknowledge()
	}
	l.poll(back)
	require.Zero(t, l.send(1, back), "acknowledged is not consumed")
	l.consume(ring / 4)
	back.tell(l)
	require.Len(t, back.under, 1)
	back.arrive()
	back.poll(l)
	require.Equal(t, ring/4, l.send(1<<20, back))

	l, back = newLine(t, ring), newLine(t, ring)
	sent := 0
	for l.send(1, back) > 0 {
		sent++
		l.arrive()
		l.acknowledge()
	}
	require.Equal(t, messages, sent, "a receiver that does not poll has no buffers to give")
}

// TestStreamsRefuse: acks of what never was, and more bytes than there is room for, are errors.
func TestStreamsRefuse(t *testing.T) {
	o := outbound{ring: 1 << 16}
	o.post(100)
	require.ErrorContains(t, o.ack(2), "consumed 128 bytes and received 0 messages, of 100 and 1 sent")
	require.ErrorContains(t, o.ack(2<<16), "received 2 messages")
	require.NoError(t, o.ack(1|1<<16))
	require.ErrorContains(t, o.ack(0), "consumed") // no way back
	i := inbound{ring: 1 << 16}
	require.NoError(t, i.arrive(1<<16))
	require.ErrorContains(t, i.arrive(3), "3 bytes more than its ring has")
}
