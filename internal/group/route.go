package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/protocol/reducescatter"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/session"
	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/fault"
)

// Pauses between attempts to join a switch again: each twice the one before. A node keeps
// a rank that waits for others for 30 s, by default: longer than any other rank pauses.
const (
	firstPause = time.Second
	lastPause  = 15 * time.Second
)

// jitter shortens a pause by up to a quarter, for each rank and epoch by another share, so
// that ranks whose attempts miss each other do not do so for ever.
func jitter(pause time.Duration, rank int, epoch uint32) time.Duration {
	share := rand.New(rand.NewPCG(uint64(rank), uint64(epoch))).Float64() // repeatable on purpose
	return pause - time.Duration(share*float64(pause)/4)
}

// route decides how a group's Reduce-Scatters go, alike on all ranks: through a switch or
// directly. It runs on one goroutine from the first of them to the end of the group.
//
// An epoch is an attempt of all ranks to use a switch. It ends at all of them
// when one that had all ranks joined loses the switch: that one gives notice
// over the mesh. As all ranks take part in every epoch, all agree equally often.
type route struct {
	*Group
	open    func(context.Context) (fabric.Streams, error)
	streams fabric.Streams // once they are needed
	epoch   uint32
	pause   time.Duration // before the last attempt to join again, 0: none since a switch served
	served  uint64        // operations that switches had done when this one came in use
}

// joined is what an attempt to join a switch has brought.
type joined struct {
	session *session.Session
	uplink  *reducescatter.Uplink
	address string
	all     bool       // all ranks had sessions: others may use the switch already
	lost    chan error // why the data path is, once
	err     error
}

func (j *joined) close() {
	if j.uplink != nil {
		_ = j.uplink.Close() // what it tells is about a switch that nobody uses
	} else if j.session != nil {
		_ = j.session.Close(nil)
	}
}

// run is the goroutine. An error ends the group.
func (r *route) run() {
	err := r.begin()
	if err != nil && r.life.Err() == nil {
		r.reduceBroken(err)
	}
}

func (r *route) begin() error {
	if r.plan.switches == 0 {
		return r.directly(r.plan.noSwitch)
	}
	// All ranks are here before any waits for the others at the switch.
	if _, err := r.mesh.Agree(r.life, []byte{1}); err != nil {
		return err
	}
	var reasons error
	for range r.plan.switches {
		j, err := r.joinTogether()
		if err != nil {
			return err
		}
		if j.err == nil {
			r.through(&j)
			if err := r.reduce.Do(r.life, func() { r.reduce.Begin(r.epoch, j.uplink, nil) }); err != nil {
				j.close()
				return err
			}
			return r.watch(&j)
		}
		reasons = errors.Join(reasons, j.err)
	}
	if err := r.directly(strings.ReplaceAll(reasons.Error(), "\n", "; ")); err != nil {
		return err
	}
	r.epoch++
	return r.watch(nil)
}

// directly lets operations begin without a switch.
func (r *route) directly(reason string) error {
	r.setReason(reason)
	if r.plan.switches > 0 {
		r.log.Warn("reduce-scatter goes directly", "reason", reason)
	}
	if err := r.openStreams(); err != nil {
		return err
	}
	return r.reduce.Do(r.life, func() { r.reduce.Begin(r.epoch, nil, r.streams) })
}

// overdue is how late a rank may be before the others say that they wait for it.
const overdue = 10 * time.Second

// openStreams waits for every rank, however late it comes to its first reduction.
func (r *route) openStreams() (err error) {
	if r.streams != nil {
		return nil
	}
	late := time.AfterFunc(overdue, func() {
		if ranks := r.lobby.absent(r.plan, wire.PurposeStream); len(ranks) > 0 {
			r.log.Warn("waiting for ranks that have not begun a Reduce-Scatter, Reduce or large Allreduce", "ranks", ranks)
		}
		for rank, err := range r.lobby.unreached() {
			r.log.Warn("a rank cannot be reached yet", "peer", rank, "error", err)
		}
	})
	defer late.Stop()
	r.streams, err = r.open(r.life)
	return err
}

// joinTogether is the next epoch, in which all ranks join or none does. The
// first rank that fails gives the reason to all.
func (r *route) joinTogether() (joined, error) {
	r.epoch++
	limit := r.plan.settings.SwitchTimeout
	ctx, cancel := context.WithTimeoutCause(r.life, limit, &TimeoutError{"MCAST_SWITCH_TIMEOUT", limit})
	defer cancel()
	j := r.join(ctx, r.epoch)
	text := []byte{0} // a record of the mesh is never empty
	if j.err != nil {
		text = fmt.Appendf(text, "rank %d: %v", r.plan.rank, j.err)
	}
	all, err := r.mesh.Agree(r.life, text)
	if err != nil {
		j.close()
		return j, err
	}
	for _, text := range all {
		if len(text) > 1 {
			j.close()
			return joined{err: errors.New(string(text[1:]))}, nil
		}
	}
	return j, nil
}

// join makes one attempt. It returns when all ranks have joined.
func (r *route) join(ctx context.Context, epoch uint32) (j joined) {
	s := &r.plan.settings
	j.lost = make(chan error, 1)
	j.address = s.Switches()[int(epoch-1)%r.plan.switches]
	offload, err := batch.ParseOffload(s.Offload)
	if err != nil {
		j.err = err
		return j
	}
	j.session, j.err = session.Dial(ctx, j.address, session.Hello{
		Job: r.plan.job, Epoch: epoch, Ranks: r.plan.size, Rank: r.plan.rank,
		Reproducible: s.SwitchMode == "reproducible", Secret: s.Secret, Timeout: s.SwitchTimeout,
		Chunk: r.switchChunk(), Offload: offload, Network: r.lobby.network.Sessions(),
	})
	if j.err != nil {
		return j
	}
	terms, number, err := j.session.Ready(ctx)
	if j.all = err == nil; j.all {
		err = r.probe(ctx, j.session, terms, number)
	}
	if err == nil {
		terms.Cutoff, terms.Reorder = s.Cutoff, reorder
		j.uplink, err = r.attach(j.session, reducescatter.UplinkConfig{
			Epoch: epoch, Terms: terms, Rank: r.plan.rank, Number: number, Timeout: s.SwitchTimeout, Yield: r.yield,
			Lost: func(err error) { j.lost <- err },
		})
	}
	if err != nil {
		j.err = fmt.Errorf("switch at %s: %w", j.address, err)
	}
	return j
}

// attach makes an uplink of a session, which it closes.
func (r *route) attach(s *session.Session, c reducescatter.UplinkConfig) (*reducescatter.Uplink, error) {
	path, err := s.Datapath(c.Terms.Chunk)
	if err != nil {
		return nil, err
	}
	c.Switch = path
	if set := &r.plan.settings; set.Loss > 0 {
		c.Switch = fault.LossySwitch(path, set.Loss, set.LossSeed+uint64(r.plan.rank))
	}
	return reducescatter.NewUplink(c), nil
}

// switchChunk bounds the chunks of a switch: by MCAST_CHUNK, and by what the paths between ranks were
// found to carry, since a rank's port is on its path to the switch too. 0: by neither.
func (r *route) switchChunk() int {
	const headers = 40 + 8 + wire.SlotSize + session.TagSize // those of IPv6 and UDP, the longest
	chunk, narrow := r.plan.settings.Chunk, r.plan.narrow-headers
	if narrow > 0 && (chunk == 0 || narrow < chunk) {
		return narrow
	}
	return chunk
}

// probeLimit is how long datagrams may take to a switch and back, the first polls lost. Not longer:
// ranks whose datagrams pass may wait for one whose do not before they hear that it gives up.
const probeLimit = 2 * time.Second

// probe returns once datagrams of all sizes have gone to the switch and back.
func (r *route) probe(ctx context.Context, s *session.Session, t innetwork.Terms, number int) error {
	limit := min(probeLimit, r.plan.settings.SwitchTimeout)
	ctx, stop := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer for %v", limit))
	defer stop()
	return s.Probe(ctx, t, number)
}

// watch keeps the route as switches come and go, until the group ends. j is the one in use, or nil.
func (r *route) watch(j *joined) error {
	for r.life.Err() == nil {
		if j == nil {
			next, err := r.await()
			if err != nil {
				return err
			}
			j = next
			continue
		}
		if err := r.use(j); err != nil {
			return err
		}
		j = nil
	}
	return nil
}

// use returns once the switch in use is given up, by all ranks.
func (r *route) use(j *joined) error {
	for {
		notice, next := r.mesh.Noticed()
		if notice.Number >= r.epoch {
			reason := fmt.Sprintf("rank %d lost the switch at %s: %s", notice.Rank, j.address, notice.Text)
			r.tally.fallbacks.Add(1)
			r.log.Warn("reduce-scatter goes directly", "reason", reason)
			r.warnings.add("switch lost", "Reduce-Scatter went directly for a while: "+reason)
			return r.leave(reason)
		}
		var err error
		select {
		case <-r.life.Done():
			return nil
		case <-next:
			continue
		case err = <-j.lost:
		case <-j.session.Lost():
			err = j.session.Err()
		}
		var refused *session.Error
		if errors.As(err, &refused) && refused.Mismatch {
			r.mesh.Report(&Fault{Kind: Mismatch, Rank: r.plan.rank, Text: refused.Text})
			<-r.life.Done()
			return nil
		}
		r.mesh.Notify(r.epoch, err.Error())
	}
}

// leave ends an epoch: nobody uses the switch any more, and what it has left
// undone is finished directly.
func (r *route) leave(reason string) error {
	var record []byte
	var left *reducescatter.Uplink
	if err := r.reduce.Do(r.life, func() { record, left = r.reduce.Stop(r.epoch) }); err != nil {
		return err
	}
	if left != nil {
		_ = left.Close() // what it tells is about a switch that nobody uses any more
	}
	records, err := r.mesh.Agree(r.life, record)
	if err != nil {
		return err
	}
	if err := r.openStreams(); err != nil {
		return err
	}
	r.setReason(reason) // whoever waited may look at it next
	e := r.reduce.Do(r.life, func() { err = r.reduce.Resume(records, r.streams) })
	if err := errors.Join(e, err); err != nil {
		return err
	}
	if r.reduce.Stats().Switched > r.served {
		r.pause = 0 // one that is joined and does not serve is not worth joining again soon
	}
	r.epoch++
	return nil
}

// await tries to join a switch again until all ranks have. It returns nil if the epoch ends before.
func (r *route) await() (*joined, error) {
	ctx, cancel := context.WithCancel(r.life)
	defer cancel()
	result := make(chan joined, 1)
	go func(epoch uint32) { result <- r.rejoin(ctx, epoch) }(r.epoch)
	for {
		notice, next := r.mesh.Noticed()
		if notice.Number >= r.epoch || r.life.Err() != nil {
			cancel()
			j := <-result
			j.close()
			if r.life.Err() != nil {
				return nil, nil
			}
			return nil, r.leave(notice.Text)
		}
		select {
		case <-r.life.Done():
		case <-next:
		case j := <-result:
			if j.err != nil {
				return nil, nil // the group has ended
			}
			r.through(&j)
			if err := r.reduce.Do(r.life, func() { r.reduce.Join(j.uplink) }); err != nil {
				j.close()
				return nil, err
			}
			return &j, nil
		}
	}
}

// rejoin makes attempts until one succeeds or ctx ends. One that does not reach
// a switch is repeated after a pause; with several switches, rank 0 makes all go on to the next.
// If it fails once all ranks have sessions, the epoch ends for all: those whose own datagrams pass use the
// switch, rank 0 announces it, and a job that has begun takes nobody in.
func (r *route) rejoin(ctx context.Context, epoch uint32) joined {
	for {
		r.pause = min(max(2*r.pause, firstPause), lastPause)
		select {
		case <-time.After(jitter(r.pause, r.plan.rank, epoch)):
		case <-ctx.Done():
			return joined{err: ctx.Err()}
		}
		j := r.join(ctx, epoch)
		if j.err == nil {
			return j
		}
		j.close()
		if ctx.Err() != nil {
			return j
		}
		r.log.Debug("cannot join a switch", "epoch", epoch, "error", j.err)
		if j.all || r.plan.rank == 0 && r.plan.switches > 1 {
			r.mesh.Notify(epoch, j.err.Error())
			<-ctx.Done()
			return j
		}
	}
}

// through notes which switch is in use, or will soon be.
func (r *route) through(j *joined) {
	how := "sums in a fixed order"
	if r.plan.settings.SwitchMode == "fast" {
		how = "sums as contributions arrive"
	}
	r.served = r.reduce.Stats().Switched
	r.way.Store(&way{reason: r.way.Load().reason, via: fmt.Sprintf("the switch at %s %s", j.address, how)})
	level := slog.LevelInfo
	if r.epoch > 1 {
		level = slog.LevelWarn // whoever was told that it is lost wants to know that it is back
	}
	r.log.Log(context.Background(), level, "reduce-scatter goes through the switch", "switch", j.address, "epoch", r.epoch)
}

func (r *route) setReason(reason string) { r.way.Store(&way{reason: reason}) }

// way says how Reduce-Scatters go, in words.
type way struct {
	reason string // why directly
	via    string // through which switch, if that
}
