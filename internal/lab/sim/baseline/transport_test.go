package baseline

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
)

// TestTransportsDeliver sends packets over a channel that loses and duplicates
// them, and their feedback, at random: everything arrives, and go-back-N
// takes packets in order only.
func TestTransportsDeliver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const window = 8
		end := rapid.Int64Range(1, 60).Draw(t, "packets")
		ackEvery := rapid.IntRange(1, 4).Draw(t, "ackEvery")
		var s sender = &goBackSender{window: window}
		var r receiver = &goBackReceiver{ackEvery: ackEvery}
		selective := rapid.Bool().Draw(t, "selective")
		if selective {
			s, r = newSelectiveSender(window, rapid.IntRange(0, 3).Draw(t, "reorder")), newSelectiveReceiver(window, ackEvery)
		}
		type sent struct{ psn, serial int64 }
		var data []sent
		var back []feedback
		fates := rapid.SliceOfN(rapid.IntRange(0, 9), 400, 400).Draw(t, "fates") // 0: lost, 1: twice
		dice := func() int {
			if len(fates) == 0 {
				return 9
			}
			f := fates[0]
			fates = fates[1:]
			return f
		}
		for n := 0; s.acknowledged() < end; n++ {
			if n > 100_000 {
				t.Fatalf("stuck at %d of %d", s.acknowledged(), end)
			}
			switch {
			case s.sendable(end):
				psn, serial := s.take(end)
				if psn >= s.acknowledged()+window || psn >= end {
					t.Fatalf("packet %d is out of the window from %d, end %d", psn, s.acknowledged(), end)
				}
				for f := dice(); f > 0; f = 2 * (f & 1) {
					data = append(data, sent{psn, serial})
					if f != 1 {
						break
					}
				}
			case len(data) == 0 && len(back) == 0:
				s.timeout()
			}
			if len(data) > 0 && dice() > 3 {
				before := r.expected()
				reply, ok := r.receive(data[0].psn, data[0].serial, data[0].psn == end-1)
				if after := r.expected(); after < before || !selective && after > before+1 || after > s.acknowledged()+window {
					t.Fatalf("expected %d becomes %d", before, after)
				}
				data = data[1:]
				if ok && dice() > 0 {
					back = append(back, reply)
				}
			}
			if len(back) > 0 && dice() > 3 {
				s.feedback(back[0])
				back = back[1:]
			}
			if s.acknowledged() > r.expected() {
				t.Fatalf("%d acknowledged, %d received", s.acknowledged(), r.expected())
			}
		}
	})
}

// TestGoBackReceiver: one NACK a gap, old packets acknowledged again, ACKs coalesced.
func TestGoBackReceiver(t *testing.T) {
	r := &goBackReceiver{ackEvery: 2}
	for i, s := range []struct {
		psn    int64
		urgent bool
		want   *feedback
	}{
		{0, false, nil},
		{1, false, passed(ack(2))},
		{3, false, passed(nack(2))},
		{4, false, nil}, {3, false, nil}, // no second NACK
		{1, false, passed(ack(2))},
		{2, true, passed(ack(3))},
		{4, false, passed(nack(3))}, // of a new gap
	} {
		out, ok := r.receive(s.psn, 0, s.urgent)
		require.Equal(t, s.want != nil, ok, "step %d", i)
		if ok {
			require.Equal(t, *s.want, out, "step %d", i)
		}
	}
}

// TestSelectiveResendsOnlyTheLost also when what was sent again is lost once more.
func TestSelectiveResendsOnlyTheLost(t *testing.T) {
	s, r := newSelectiveSender(16, 0), newSelectiveReceiver(16, 1)
	lost := map[int64]bool{2: true, 5: true, 10: true, 12: true} // by serial; 12 is packet 2 again
	var order []int64
	var back []feedback
	for s.acknowledged() < 12 {
		for s.sendable(12) {
			psn, serial := s.take(12)
			order = append(order, psn)
			require.Less(t, len(order), 30)
			if lost[serial] {
				continue
			}
			if reply, ok := r.receive(psn, serial, false); ok {
				back = append(back, reply)
			}
		}
		require.NotEmpty(t, back, "no timeout is needed")
		s.feedback(back[0])
		back = back[1:]
	}
	require.Equal(t, []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 2, 5, 10, 2}, order)
}

// TestSelectiveReceiver: ACKs are coalesced as long as all is in order, and each packet out of
// order has its own.
func TestSelectiveReceiver(t *testing.T) {
	r := newSelectiveReceiver(8, 3)
	for i, s := range []struct {
		psn  int64
		want *feedback
	}{
		{0, nil},
		{2, &feedback{expected: 1, serial: 1}},
		{3, &feedback{expected: 1, serial: 2}},
		{1, &feedback{expected: 4, serial: 3}}, // ends the gap
		{4, nil},
		{5, nil},
		{6, &feedback{expected: 7, serial: 6}},
		{3, &feedback{expected: 7, serial: 7}}, // an old one
	} {
		out, ok := r.receive(s.psn, int64(i), false)
		require.Equal(t, s.want != nil, ok, "step %d", i)
		if ok {
			require.Equal(t, *s.want, out, "step %d", i)
		}
	}
}

// TestReorderThreshold: a packet is lost when more than so many have overtaken it.
func TestReorderThreshold(t *testing.T) {
	for _, reorder := range []int{0, 1, 2, 5} {
		s, r := newSelectiveSender(16, reorder), newSelectiveReceiver(16, 1)
		for range 8 {
			s.take(8)
		}
		for psn := int64(1); psn <= int64(reorder); psn++ {
			reply, ok := r.receive(psn, psn, false)
			require.True(t, ok)
			s.feedback(reply)
			require.False(t, s.sendable(8), "%d have overtaken, %d may", psn, reorder)
		}
		reply, _ := r.receive(int64(reorder)+1, int64(reorder)+1, false)
		s.feedback(reply)
		require.True(t, s.sendable(8))
		psn, serial := s.take(8)
		require.EqualValues(t, []int64{0, 8}, []int64{psn, serial})
		require.False(t, s.sendable(8))
	}
}

// TestSelectiveDoesWithoutMostFeedback: a later ACK makes good for the lost ones.
func TestSelectiveDoesWithoutMostFeedback(t *testing.T) {
	s, r := newSelectiveSender(16, 0), newSelectiveReceiver(16, 1)
	for range 12 {
		psn, serial := s.take(12)
		if reply, _ := r.receive(psn, serial, false); psn == 11 {
			s.feedback(reply)
		}
	}
	require.EqualValues(t, 12, s.acknowledged())
	require.False(t, s.sendable(12))
}

// unicast sends from one host to another, as SRNIC's experiment does.
func unicast(transport Transport, loss float64) Config {
	c := Config{Net: star(2), Algorithm: BroadcastChain, Bytes: 64 << 20, Transport: transport, Seed: 1}
	c.Net.Latency = 2 * time.Microsecond
	c.Net.Faults.Loss = loss
	return c
}

// TestGoodputUnderLoss: both deliver everything, and selective repeat keeps
// about what arrives, which go-back-N does not.
func TestGoodputUnderLoss(t *testing.T) {
	for _, loss := range []float64{0, 1e-3, 1e-2, 0.05, 0.1} {
		goodput := map[Transport]float64{}
		for _, transport := range []Transport{GoBackN, SelectiveRepeat} {
			r, err := Run(unicast(transport, loss))
			require.NoError(t, err, "%s, loss %v", transport, loss)
			goodput[transport] = r.Goodput
			if loss == 0 {
				require.Zero(t, r.Retransmitted)
				require.Zero(t, r.Timeouts)
				require.InEpsilon(t, gbps*4096./wire, r.Goodput, 0.01, "the window fills the link")
			} else {
				require.Positive(t, r.Retransmitted)
			}
			if loss <= 1e-2 {
				require.LessOrEqual(t, float64(r.Timeouts), loss*(16<<10)/5, "feedback finds most losses")
			}
			if again := float64(r.Retransmitted) / (16 << 10); transport == SelectiveRepeat {
				// Feedback is lost too: its packets have come, and are sent again in vain.
				require.GreaterOrEqual(t, again, 0.7*loss)
				require.LessOrEqual(t, again, 2*loss/(1-loss))
			}
		}
		better := map[float64]float64{0: 0.999, 1e-3: 1, 1e-2: 1.05, 0.05: 2, 0.1: 5}[loss]
		require.Greater(t, goodput[SelectiveRepeat], better*goodput[GoBackN], "loss %v", loss)
	}
}

// TestCollectivesUnderLoss: each collective over each transport, with loss,
// duplicates and damage on every link.
func TestCollectivesUnderLoss(t *testing.T) {
	for _, transport := range []Transport{Reliable, GoBackN, SelectiveRepeat} {
		for _, algorithm := range Algorithms() {
			for _, p := range []int{4, 7} {
				t.Run(fmt.Sprintf("%s/%s/%d", transport, algorithm, p), func(t *testing.T) {
					c := Config{Net: star(p), Algorithm: algorithm, Transport: transport, Bytes: 150_000, Segment: 20_000, AckEvery: 3}
					c.Net.Faults = network.Faults{Loss: 0.03, LinkLoss: 0.01, Corrupt: 0.01, Duplicate: 0.02}
					for c.Seed = range 5 {
						_, err := Run(c)
						require.NoError(t, err, "seed %d", c.Seed)
					}
				})
			}
		}
	}
}

// TestReorderedPackets: overtaking costs time, never a piece; a threshold spares the repeats.
func TestReorderedPackets(t *testing.T) {
	var again [2]int64
	for i, reorder := range []int{0, 8} {
		c := unicast(SelectiveRepeat, 0)
		c.Net.Faults.Jitter = time.Microsecond // three packets' time
		c.Reorder = reorder
		r, err := Run(c)
		require.NoError(t, err)
		again[i] = r.Retransmitted
	}
	require.Positive(t, again[0])
	require.Zero(t, again[1])
	c := unicast(GoBackN, 0)
	c.Net.Faults.Jitter = time.Microsecond
	_, err := Run(c)
	require.NoError(t, err)
}

// TestNoAnswer: a peer that is cut off ends the run with its name.
func TestNoAnswer(t *testing.T) {
	for _, transport := range []Transport{GoBackN, SelectiveRepeat} {
		c := Config{Net: star(3), Algorithm: AllgatherRing, Bytes: 1 << 20, Transport: transport, Retries: 4}
		c.Net.Faults.Partitions = []network.Partition{{Hosts: []int{1}, At: 0, For: time.Hour}}
		_, err := Run(c)
		require.ErrorContains(t, err, "has no answer from rank")
	}
}

// TestQueueIsNoSilence: a sender that was away finds the feedback in its queue,
// and sends nothing again.
func TestQueueIsNoSilence(t *testing.T) {
	for _, transport := range []Transport{GoBackN, SelectiveRepeat} {
		for _, algorithm := range []Algorithm{BroadcastChain, BroadcastGleam} {
			c := unicast(transport, 0)
			c.Algorithm, c.Bytes = algorithm, 1<<20
			c.Net.Cost = 100 * time.Nanosecond
			c.Net.Faults.Pauses = []network.Pause{{Node: 0, At: 20 * time.Microsecond, For: time.Millisecond}}
			r, err := Run(c)
			require.NoError(t, err)
			require.Greater(t, r.Time, time.Millisecond)
			require.Zero(t, r.Timeouts, "%s, %s", transport, algorithm)
		}
	}
}
