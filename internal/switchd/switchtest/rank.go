// Package switchtest has a rank for tests of the switch: internal/protocol/reducescatter
// over the sockets of a session, and nothing else of a communicator.
package switchtest

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/direct"
	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/protocol/reducescatter"
	"github.com/torch-mcast/torch-mcast/internal/session"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/fault"
)

// Rank is a member of a job. It belongs to one goroutine at a time.
type Rank struct {
	Session *session.Session // nil: see Over
	Terms   innetwork.Terms

	rank   int
	number int // at the switch
	path   fabric.Switch
	lane   *reducescatter.Lane
	conn   *reducescatter.SwitchConn
	start  time.Time
	lost   error // why the data path is
}

// Join dials the switch at addr and waits until all ranks are there.
func Join(ctx context.Context, addr string, h session.Hello) (*Rank, error) {
	s, err := session.Dial(ctx, addr, h)
	if err != nil {
		return nil, err
	}
	r, err := Attach(ctx, s, h)
	if err != nil {
		_ = s.Close(nil) // err says more
	}
	return r, err
}

// Attach waits until all ranks of a session that was dialed are there.
func Attach(ctx context.Context, s *session.Session, h session.Hello) (*Rank, error) {
	t, number, err := s.Ready(ctx)
	if err != nil {
		return nil, err
	}
	datapath, err := s.Datapath(t.Chunk)
	if err != nil {
		return nil, err
	}
	r := Over(datapath, t, h.Rank, number)
	r.Session = s
	return r, nil
}

// Over returns a rank over a data path without a session.
func Over(path fabric.Switch, t innetwork.Terms, rank, number int) *Rank {
	t.Cutoff, t.Reorder = 5*time.Millisecond, 200*time.Microsecond
	r := &Rank{Terms: t, rank: rank, number: number, path: path, start: time.Now()}
	r.begin()
	return r
}

// begin lets operations be posted.
func (r *Rank) begin() {
	r.conn = reducescatter.NewSwitchConn(reducescatter.SwitchConnConfig{
		Epoch: 1, Terms: r.Terms, Rank: r.rank, Number: r.number, Switch: r.path, Timeout: time.Hour,
		Lost: func(err error) { r.lost = err },
	})
	r.lane = reducescatter.New(r.rank, r.Terms.Ranks)
	r.lane.Begin(1, r.conn)
}

// Lossy loses a share of what the rank contributes and receives. It is for before the first operation.
func (r *Rank) Lossy(loss float64, seed uint64) {
	r.path = fault.LossySwitch(r.path, loss, seed)
	r.begin()
}

// Close leaves the job.
func (r *Rank) Close() error { return r.conn.Close() }

// Stats count what went over the data path.
func (r *Rank) Stats() reducescatter.SwitchConnStats { return r.conn.Stats() }

// ReduceScatter runs an operation to its end. send holds a shard for each rank, recv takes one.
func (r *Rank) ReduceScatter(ctx context.Context, o collective.Op, send, recv []byte) error {
	r.Post(o, send, recv)
	return r.Finish(ctx)
}

// Post begins an operation.
func (r *Rank) Post(o collective.Op, send, recv []byte) {
	r.lane.Post(r.now(), direct.Op{Op: o, Send: send, Recv: recv})
}

// Finish works until all operations are done, the session is lost, or ctx ends.
func (r *Rank) Finish(ctx context.Context) error {
	for !r.Done() {
		if err := r.Work(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Done reports whether all operations are.
func (r *Rank) Done() bool { return r.lane.Room() == collective.MaxInFlight }

// Work does one round, and sleeps if there is nothing to do.
func (r *Rank) Work(ctx context.Context) error {
	busy := r.conn.Work(r.now())
	for {
		if _, ok := r.lane.NextDone(); !ok {
			break
		}
		busy = true
	}
	var ended <-chan struct{}
	if r.Session != nil {
		ended = r.Session.Lost()
	}
	select {
	case <-ended:
		return r.Session.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	default:
	}
	if !busy {
		r.conn.Sleep(r.now(), 50*time.Millisecond)
	}
	return r.lost
}

func (r *Rank) now() innetwork.Time { return time.Since(r.start) }

// Equal reports the first byte in which two results differ.
func Equal(want, got []byte) error {
	if bytes.Equal(want, got) {
		return nil
	}
	for i := range min(len(want), len(got)) {
		if want[i] != got[i] {
			return fmt.Errorf("byte %d of %d is %#x; want %#x", i, len(want), got[i], want[i])
		}
	}
	return fmt.Errorf("%d bytes; want %d", len(got), len(want))
}
