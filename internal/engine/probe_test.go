package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/fabric/datagram"
	"github.com/torch-mcast/torch-mcast/internal/inc"
	"github.com/torch-mcast/torch-mcast/internal/wire"
)

// polled is a switch that counts polls and answers one of them.
type polled struct {
	t      *testing.T
	mirror mirror
	job    uint64 // of the answer
	seen   int
	answer int // the poll that is answered, counted from 1
}

func (p *polled) Datagram(head, payload []byte) {
	var h wire.Slot
	var st wire.SlotStatus
	require.NoError(p.t, h.Get(head))
	require.NoError(p.t, st.Get(payload))
	assert.Equal(p.t, wire.SlotStatus{Have: 5, Next: 5, Poll: true, Held: st.Held}, st)
	assert.Equal(p.t, wire.Slot{Kind: wire.Status, Member: 1, Job: 7}, wire.Slot{Kind: h.Kind, Stripe: h.Stripe, Member: h.Member, Job: h.Job})
	if p.seen++; p.seen == p.answer {
		credit := make([]byte, wire.SlotBodySize)
		(&wire.SlotCredit{Base: 5, Limit: 13}).Put(credit)
		p.mirror.send(p.t, wire.Slot{Kind: wire.Allowance, Member: 1, Job: p.job}, credit)
	}
}

// TestProbe: it asks until a switch answers, and takes no answer of another job for it.
func TestProbe(t *testing.T) {
	for name, c := range map[string]struct {
		job    uint64
		answer int
		limit  time.Duration
		fails  bool
	}{
		"at once":     {7, 1, 30 * time.Second, false},
		"third poll":  {7, 3, 30 * time.Second, false},
		"another job": {8, 1, 200 * time.Millisecond, true},
		"never":       {7, 0, 200 * time.Millisecond, true},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := pair(t)
			u, err := NewUplink(UplinkConfig{
				Terms:  inc.Terms{Job: 7, Ranks: 2, Stripes: 1, Chunk: 1024, Slots: 8, First: 5, Cutoff: time.Hour, Reorder: time.Hour},
				Number: 1, Sockets: []*datagram.Socket{ours}, Head: wire.SlotSize, Close: func() error { return nil },
			})
			require.NoError(t, err)
			defer func() { assert.NoError(t, u.Close()) }()
			p := &polled{t: t, mirror: mirror{Socket: theirs}, job: c.job, answer: c.answer}
			p.mirror.batch, err = datagram.NewBatch(wire.SlotSize, 1024)
			require.NoError(t, err)
			over := errors.New("time is over")
			ctx, cancel := context.WithTimeoutCause(t.Context(), c.limit, over)
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- u.Probe(ctx) }()
			for len(done) == 0 {
				_, err := p.mirror.batch.Receive(theirs, nil, 8, p)
				require.NoError(t, err)
				time.Sleep(time.Millisecond)
			}
			err = <-done
			if c.fails {
				require.ErrorIs(t, err, over)
				require.ErrorContains(t, err, "does not answer")
				return
			}
			require.NoError(t, err)
			require.GreaterOrEqual(t, p.seen, c.answer)
		})
	}
}
