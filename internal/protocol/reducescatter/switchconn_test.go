package reducescatter

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/direct"
	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/session"
	"github.com/torch-mcast/torch-mcast/internal/transport/datagram"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/seal"
	"github.com/torch-mcast/torch-mcast/internal/transport/sendlink"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// now is a clock of the tests that use sockets.
var now = func() func() innetwork.Time {
	start := time.Now()
	return func() innetwork.Time { return time.Since(start) } //nolint:forbidigo // a clock
}()

// pair returns two sockets on lo that are connected with each other.
func pair(t *testing.T) (a, b *datagram.Socket) {
	t.Helper()
	lo := netip.MustParseAddr("127.0.0.1")
	var s [2]*datagram.Socket
	for i := range s {
		var err error
		s[i], err = datagram.Open(datagram.Options{Local: lo})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, s[i].Close()) })
	}
	for i := range s {
		require.NoError(t, s[i].Connect(netip.AddrPortFrom(lo, s[1-i].Port())))
	}
	return s[0], s[1]
}

// until repeats a step until it reports that it was the last.
func until(t *testing.T, step func() bool) {
	t.Helper()
	for end := systest.Deadline(); !step(); {
		require.True(t, time.Now().Before(end), "no end")
	}
}

// mirror is a switch for one rank: it keeps the datagrams that come, and answers when told.
type mirror struct {
	*datagram.Socket
	batch *datagram.Batch
	seals session.Seals
	heads []wire.Slot
	data  [][]byte
	kept  []wire.SlotKept
}

func (m *mirror) Datagram(head, payload []byte) {
	var h wire.Slot
	switch {
	case h.Get(head) != nil:
	case h.Kind == wire.Contribution:
		m.heads = append(m.heads, h)
		m.data = append(m.data, append([]byte{}, payload...))
	case h.Kind == wire.Kept:
		var k wire.SlotKept
		if k.Get(payload) == nil {
			m.heads = append(m.heads, h)
			m.kept = append(m.kept, k)
		}
	}
}

func (m *mirror) send(t *testing.T, h wire.Slot, payload []byte) {
	_, ok := m.seals.Add(m.batch, &h, payload)
	require.True(t, ok)
	n, err := m.batch.Flush(m.Socket)
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

// rig is one rank with a connection to a mirror.
func rig(t *testing.T, chunk int, key []byte, inPlace bool) (*SwitchConn, *mirror, direct.Op) {
	t.Helper()
	ours, theirs := pair(t)
	c := SwitchConnConfig{
		Epoch: 1, Terms: innetwork.Terms{
			Job: 7, Ranks: 2, Stripes: 1, Chunk: chunk, Slots: 8, Cutoff: time.Hour, Reorder: time.Hour,
		},
		Timeout: time.Hour, Lost: func(err error) { t.Errorf("lost: %v", err) },
	}
	m := &mirror{Socket: theirs}
	var seals session.Seals
	if key != nil {
		seals = session.Seals{Out: seal.New(seal.Tags, key, 0), In: seal.New(seal.Tags, key, 0)}
		m.seals = session.Seals{Out: seal.New(seal.Tags, key, 0), In: seal.New(seal.Tags, key, 0)}
	}
	var err error
	m.batch, err = datagram.NewBatch(m.seals.Head(), chunk)
	require.NoError(t, err)
	c.Switch, err = session.NewDatapath(session.DatapathConfig{
		Sockets: []*datagram.Socket{ours}, Seals: []session.Seals{seals}, Chunk: chunk, Close: func() error { return nil },
	})
	require.NoError(t, err)
	u := NewSwitchConn(c)
	t.Cleanup(func() { assert.NoError(t, u.Close()) })
	New(0, 2).Begin(1, u)
	n := 2 * chunk
	o := direct.Op{Op: collective.Op{Count: n / 4, Type: reduce.F32}, Send: make([]byte, 2*n), Recv: make([]byte, n)}
	for i := range o.Send {
		o.Send[i] = byte(i * 7)
	}
	if inPlace {
		o.Recv = o.Send[:n]
	}
	u.lane.Post(now(), o)
	u.Work(now())
	until(t, func() bool {
		_, err := m.batch.Receive(theirs, nil, 8, m)
		require.NoError(t, err)
		return len(m.heads) == 3
	})
	return u, m, o
}

// result is the header of the switch's answer with a chunk of what the rank keeps.
func (m *mirror) result(i int) wire.Slot {
	h := m.heads[0]
	h.Kind, h.Slot = wire.Result, h.Slot+uint32(i)
	return h
}

// completed is what the rank makes of a partial result.
func completed(others, own []byte) []byte {
	sum := make([]byte, len(own))
	reduce.Fold(sum, [][]byte{others, own}, reduce.F32, reduce.Sum, 0)
	return sum
}

// TestResultsThatAreNotTheSwitchs change nothing, wherever they were received: in place that would be
// what the rank keeps. A duplicate is added once.
func TestResultsThatAreNotTheSwitchs(t *testing.T) {
	key := make([]byte, 32)
	for _, chunk := range []int{1024, 32 << 10} {
		u, m, o := rig(t, chunk, key, true)
		before := append([]byte{}, o.Send...)
		forged, garbage := make([]byte, chunk), make([]byte, chunk)
		honest := m.seals.Out
		m.seals.Out = seal.New(seal.Tags, append([]byte{1}, key[1:]...), 0)
		m.send(t, m.result(0), forged)
		m.seals.Out = honest
		other := m.result(0)
		other.Job++
		m.send(t, other, garbage)
		until(t, func() bool {
			u.Work(now())
			return u.Stats().Refused+u.Stats().Dropped == 2
		})
		assert.Equal(t, before, o.Send)
		assert.EqualValues(t, 1, u.Stats().Refused)
		assert.Empty(t, u.member.Held(0))

		right := bytes.Repeat([]byte{1, 2, 3, 0x40}, chunk/4)
		m.send(t, m.result(0), right)
		m.send(t, m.result(0), right)
		until(t, func() bool {
			u.Work(now())
			return len(u.member.Held(0)) > 0 && u.Stats().Dropped == 2
		})
		assert.Equal(t, completed(right, before[:chunk]), o.Recv[:chunk])
	}
}

// TestResultOutOfTurn: in place, the result of a later chunk must not touch the
// input of an earlier one, which the switch may still ask for.
func TestResultOutOfTurn(t *testing.T) {
	for _, inPlace := range []bool{true, false} {
		const chunk = 32 << 10
		u, m, o := rig(t, chunk, nil, inPlace)
		before := append([]byte{}, o.Send...)
		second := bytes.Repeat([]byte{1, 2, 3, 0x40}, chunk/4)
		m.send(t, m.result(1), second)
		until(t, func() bool {
			u.Work(now())
			return len(u.member.Held(0)) > 0
		})
		assert.Equal(t, before[:chunk], o.Send[:chunk])
		assert.Equal(t, before[2*chunk:], o.Send[2*chunk:])
		assert.Equal(t, completed(second, before[chunk:2*chunk]), o.Recv[chunk:])
		if !inPlace {
			assert.Equal(t, before, o.Send)
		}
	}
}

// TestContributionsAreTheInput compares what the switch gets, tags on and off: all but the own shard.
func TestContributionsAreTheInput(t *testing.T) {
	for _, key := range [][]byte{nil, make([]byte, 32)} {
		_, m, o := rig(t, 1024, key, false)
		var all []byte
		for _, d := range m.data {
			all = append(all, d...)
		}
		assert.Equal(t, o.Send[len(o.Recv):], all)
		assert.Equal(t, []wire.SlotKept{{Slots: 2, Bytes: uint32(len(o.Recv))}}, m.kept)
	}
}

// TestWhatWasLostDoesNotYield: a contribution that the switch misses holds all ranks up, so it goes
// again at once, while new ones wait for others.
func TestWhatWasLostDoesNotYield(t *testing.T) {
	u, m, o := rig(t, 1024, nil, false)
	at := time.Second
	link := sendlink.New(new(sendlink.Words), func() time.Duration { return at })
	link.Claim(fabric.InForeground, time.Millisecond)
	u.Pace(&fabric.Background{Link: link})
	u.lane.Post(now(), o)
	credit := make([]byte, wire.SlotBodySize+1)
	(&wire.SlotCredit{Limit: 8, Missing: wire.SlotSet{From: m.heads[1].Slot, Bits: []byte{1}}}).Put(credit)
	m.send(t, wire.Slot{Kind: wire.Allowance, Job: 7}, credit)
	until(t, func() bool {
		u.Work(now())
		_, err := m.batch.Receive(m.Socket, nil, 8, m)
		require.NoError(t, err)
		return len(m.heads) == 4
	})
	require.Equal(t, m.heads[1], m.heads[3])
	for range 100 {
		u.Work(now())
	}
	_, err := m.batch.Receive(m.Socket, nil, 8, m)
	require.NoError(t, err)
	require.Len(t, m.heads, 4)
	at += time.Second
	until(t, func() bool {
		u.Work(now())
		_, err := m.batch.Receive(m.Socket, nil, 8, m)
		require.NoError(t, err)
		return len(m.heads) == 7
	})
}

// TestFirewallIsNamed: where the silence of a switch has its cause on this host, it is said.
func TestFirewallIsNamed(t *testing.T) {
	u, _, o := rig(t, 1024, nil, false)
	var lost error
	u.cfg.Lost = func(err error) { lost = err }
	u.lane.Post(now(), o)
	systest.InSandbox(t, unix.EPERM, []uint32{unix.SYS_SENDMSG, unix.SYS_SENDMMSG}, func() {
		for at := now(); lost == nil && at < now()+100*time.Hour; at += 2 * time.Hour {
			u.Work(at)
		}
	})
	require.ErrorContains(t, lost, "it has not answered on the data path for ")
	require.ErrorContains(t, lost, "; a firewall or security policy of this host refused ")
}

// TestSwitchConnAllocatesNothing while datagrams come and go.
func TestSwitchConnAllocatesNothing(t *testing.T) {
	for _, key := range [][]byte{nil, make([]byte, 32)} {
		u, m, _ := rig(t, 1024, key, false)
		old, credit := m.result(0), make([]byte, wire.SlotBodySize)
		old.Slot += 100 // of no use, but looked at
		(&wire.SlotCredit{Limit: 8}).Put(credit)
		allowance := wire.Slot{Kind: wire.Allowance, Job: 7}
		payload := make([]byte, 1024)
		answer := func() {
			m.send(t, old, payload)
			m.send(t, allowance, credit)
		}
		alone := testing.AllocsPerRun(100, answer)
		assert.LessOrEqual(t, testing.AllocsPerRun(100, func() {
			answer()
			u.Work(now())
		}), alone)
		assert.Positive(t, u.Stats().Dropped)
	}
}

// TestHint: a result may be received where it belongs, unless that is where the input lies.
func TestHint(t *testing.T) {
	const n = 64 << 10
	for _, to := range []wire.Target{0, wire.ToRank(1)} {
		for _, inPlace := range []bool{true, false} {
			terms := innetwork.Terms{Job: 7, Ranks: 2, Stripes: 1, Chunk: 32 << 10, Slots: 8}
			u := NewSwitchConn(SwitchConnConfig{Rank: 1, Number: 1, Terms: terms})
			New(1, 2).Begin(1, u)
			o := direct.Op{
				Op: collective.Op{To: to, Count: n / 4, Type: reduce.F32}, Send: make([]byte, 2*n), Recv: make([]byte, n),
			}
			if inPlace {
				o.Recv = o.Shard(1)
			}
			u.lane.Post(0, o)
			for r, ok := u.member.NextRun(0); ok; r, ok = u.member.NextRun(0) {
				u.member.Sent(0, &r, r.Count)
			}
			if hint := u.hint(0); inPlace {
				require.Nil(t, hint, to.String())
			} else {
				require.Len(t, hint, terms.Chunk)
				require.True(t, sameMemory(hint, o.Recv[:terms.Chunk]))
			}
		}
	}
}
