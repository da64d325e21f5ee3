package collnet

import (
	"context"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/group"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// Work is an operation in flight. It goes on beside the caller's compute, whether anybody waits
// or not.
type Work struct{ work *group.Work }

// Done is closed when the operation is done, well or not: a channel, because a program that has
// something else to wait for, too, selects. To wait for nothing but the operation call Wait, which
// moves its bytes by the caller's own thread and so saves a hand-over.
func (w *Work) Done() <-chan struct{} { return w.work.Done() }

// Err returns why the operation failed; nil while it is in flight, and when it has succeeded.
func (w *Work) Err() error {
	select {
	case <-w.work.Done():
		return public(w.work.Err())
	default:
		return nil
	}
}

// Wait waits until the operation is done and returns its outcome, or until ctx ends and returns
// ctx's error; then the operation goes on and keeps its buffers. It may be called again.
func (w *Work) Wait(ctx context.Context) error { return public(w.work.Wait(ctx)) }

// OnDone has f called with the outcome when the operation is done, before Done is closed, by the
// goroutine that completes it; if it is done already, here and now. f must neither block nor wait
// for anything of the same group. An operation takes one f: set it once.
func (w *Work) OnDone(f func(err error)) {
	w.work.OnDone(func(err error) { f(public(err)) })
}

// Account tells where the time of an operation went, from its start to its end. If an operation has parts that
// run beside each other (Allreduce), the part that is the next to end decides at each moment which field counts.
type Account struct {
	Queued   time.Duration // behind older operations
	Peers    time.Duration // until other ranks had begun it
	Turn     time.Duration // for this rank's turn to send, for credit, or for a foreground group
	Transfer time.Duration // while bytes moved
	Finish   time.Duration // for the word of others, when this rank had all bytes
}

// Total returns the sum.
func (a Account) Total() time.Duration { return a.Queued + a.Peers + a.Turn + a.Transfer + a.Finish }

// Account returns where the operation's time went; zero until it is done.
func (w *Work) Account() Account {
	select {
	case <-w.work.Done():
	default:
		return Account{}
	}
	a := w.work.Account()
	return Account{
		Queued: a[overlap.Queued], Peers: a[overlap.Peers], Turn: a[overlap.Turn],
		Transfer: a[overlap.Transfer], Finish: a[overlap.Finish],
	}
}

func begun(w *group.Work, err error) (*Work, error) {
	if err != nil {
		return nil, public(err)
	}
	return &Work{work: w}, nil
}

// run begins an operation and waits for it.
func run(ctx context.Context, start func() (*group.Work, error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w, err := start()
	if err == nil {
		err = w.Wait(ctx)
	}
	return public(err)
}
