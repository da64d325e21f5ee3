package group

import (
	"context"
	"fmt"
	"sync"

	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/fabrics"
	"github.com/torch-mcast/torch-mcast/internal/hierarchy"
	"github.com/torch-mcast/torch-mcast/internal/protocol/exchange"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// messenger is the lane of messages from rank to rank.
type messenger struct {
	engine *engine.Exchange
	lane   *overlap.Lane

	mu   sync.Mutex
	shut error // why nothing more is posted
}

// newMessenger starts the lane. open is called once a rank of the group has a message.
func (g *Group) newMessenger(open func(context.Context) (fabric.Streams, error)) *messenger {
	everyone := team.Everyone(g.plan.Rank, g.plan.Size)
	var m *messenger
	e := engine.NewExchange(engine.ExchangeConfig{
		Rank: g.plan.Rank, Size: g.plan.Size, Clock: g.clock,
		Connect: func() {
			g.mesh.Connect() // the others connect as well, though they may have no message
			s, err := open(g.life)
			switch {
			case err == nil:
				m.engine.Open(s)
			case g.life.Err() == nil:
				g.laneBroken(err)
			}
		},
		Broken: func(err error) { g.laneBroken(fabrics.InRanks(&everyone, err)) },
		Trace:  g.monitor.Traced("messages", &everyone),
	})
	m = &messenger{engine: e, lane: overlap.NewLane(e)}
	g.mesh.OnConnect(e.Connect)
	return m
}

// post hands an operation to the lane.
func (m *messenger) post(o engine.ExchangeOp) (*Work, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.shut != nil {
		return nil, m.shut
	}
	// However many there are: a program may post all its receives first, and sends that wait for others to be received.
	works, err := m.engine.SubmitSteps([]engine.ExchangeOp{o}, nil)
	if err != nil {
		return nil, err
	}
	return hierarchy.NewWork(works[0], m.lane), nil
}

// Shut has all operations that come now end with an error, and reports whether none is in flight.
func (m *messenger) Shut(err error) (idle bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shut = err
	return m.engine.InFlight() == 0
}

// stop ends the agent, and the operations in flight.
func (m *messenger) stop() {
	m.lane.Close()
	m.engine.Work()
}

// leftAmidst says that a rank has left while something of this one was in flight with it.
func (g *Group) leftAmidst(e *exchange.LeftError) *Fault {
	return &Fault{Kind: Left, Rank: e.Rank, Text: fmt.Sprintf("while %s was in flight on rank %d", e.What, g.plan.Rank)}
}
