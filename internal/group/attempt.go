package group

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/owntime"
	"github.com/torch-mcast/torch-mcast/internal/protocol/reducescatter"
	"github.com/torch-mcast/torch-mcast/internal/protocol/route"
	"github.com/torch-mcast/torch-mcast/internal/session"
	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/fault"
)

// attempt is one attempt to join a switch, and its outcome.
type attempt struct {
	epoch   uint32
	session *session.Session // nil at a rank in no column, as conn is
	conn    *reducescatter.SwitchConn
	waited  bool       // it had a session, and others had none
	all     bool       // all ranks had sessions: others may use the switch already
	lost    chan error // why the data path is, once
	err     error
}

func (a *attempt) close() {
	if a.conn != nil {
		_ = a.conn.Close() // the error is about a switch that nobody uses
	} else if a.session != nil {
		_ = a.session.Close(nil)
	}
}

// join makes one attempt. It returns when all ranks have joined.
func (d *routeDriver) join(ctx context.Context, o route.Join) *attempt {
	a := &attempt{epoch: o.Epoch, lost: make(chan error, 1)}
	select {
	case <-time.After(o.After):
	case <-ctx.Done():
		a.err = ctx.Err()
		return a
	}
	if o.Within > 0 {
		within, cancel := owntime.WithTimeout(ctx, o.Within,
			&owntime.TimeoutError{Setting: "MCAST_SWITCH_TIMEOUT", After: o.Within})
		defer cancel()
		ctx = within
	}
	if d.plan.Crosses() { // else other ranks bring this rank's data to the switch
		a.err = d.joinSwitch(ctx, a, o.Address)
	}
	return a
}

func (d *routeDriver) joinSwitch(ctx context.Context, a *attempt, address string) error {
	s := &d.plan.Settings
	offload, err := batch.ParseOffload(s.Offload)
	if err != nil {
		return err
	}
	a.session, err = session.Dial(ctx, address, session.Hello{
		Job: d.plan.ColumnJob(), Epoch: a.epoch, Ranks: d.plan.Column.Size(), Rank: d.plan.Column.Own, InGroup: &d.plan.Rank,
		Reproducible: s.SwitchMode == "reproducible", Secret: s.Secret, Encrypt: s.Encrypt, Timeout: s.SwitchTimeout,
		Chunk: d.plan.SwitchChunk(), Offload: offload, DSCP: s.Mark(), Network: d.peers.Network.Sessions(),
	})
	if err != nil {
		return err
	}
	terms, number, err := a.session.Ready(ctx)
	var refused *session.Error
	mismatch := errors.As(err, &refused) && refused.Mismatch
	a.waited = err != nil && !errors.Is(err, session.ErrDraining) && !mismatch
	if a.all = err == nil; a.all {
		err = a.session.Probe(ctx, terms, number, s.SwitchTimeout)
	}
	if err == nil {
		terms.Cutoff, terms.Reorder = d.plan.Cutoff(d.peers.Network.Cores()), reorder
		a.conn, err = d.attach(a.session, reducescatter.SwitchConnConfig{
			Epoch: a.epoch, Terms: terms, Rank: d.plan.Column.Own, Number: number, Timeout: s.SwitchTimeout,
			Link: d.link.From(a.session.Local()),
			Lost: func(err error) { a.lost <- err },
		})
	}
	if err != nil {
		return fmt.Errorf("switch at %s: %w", address, err)
	}
	return nil
}

// attach makes a connection to a switch of a session, which it closes.
func (d *routeDriver) attach(s *session.Session, c reducescatter.SwitchConnConfig) (*reducescatter.SwitchConn, error) {
	path, err := s.Datapath(c.Terms.Chunk)
	if err != nil {
		return nil, err
	}
	c.Switch = path
	if set := &d.plan.Settings; set.Loss > 0 {
		c.Switch = fault.LossySwitch(path, set.Loss, set.LossSeed+uint64(d.plan.Rank))
	}
	return reducescatter.NewSwitchConn(c), nil
}
