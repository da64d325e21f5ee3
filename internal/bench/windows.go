package bench

import (
	"time"

	"github.com/torch-mcast/torch-mcast/internal/group"
)

// windows says how a collective is cut. The zero value is not at all.
type windows struct {
	bytes    int // of a window
	inFlight int
}

// gather cuts an Allgather.
func (w windows) gather(a *allgather) load {
	if w.bytes == 0 {
		return a
	}
	return gatherInWindows{a, w, a.group.(lanes)}
}

// scatter cuts a Reduce-Scatter.
func (w windows) scatter(r *reduceScatter) load {
	if w.bytes == 0 {
		return r
	}
	return scatterInWindows{r, w, r.group.(lanes)}
}

// run starts the windows of a buffer one after another, as many in flight as may be.
func (w windows) run(size int, start func(from, to int) (*group.Work, error)) error {
	flying := make([]*group.Work, 0, w.inFlight)
	for from := 0; from < size || len(flying) > 0; from += w.bytes {
		if len(flying) == w.inFlight || from >= size {
			if err := flying[0].WaitUntil(time.Time{}); err != nil {
				return err
			}
			flying = append(flying[:0], flying[1:]...)
		}
		if from < size {
			work, err := start(from, min(from+w.bytes, size))
			if err != nil {
				return err
			}
			flying = append(flying, work)
		}
	}
	return nil
}

// own returns what of this rank's shard, one of n bytes, lies in a window of the buffer.
func (p participant) own(shard []byte, from, to int) []byte {
	at := p.rank * len(shard)
	from, to = max(from-at, 0), min(to-at, len(shard))
	return shard[min(from, len(shard)):max(to, min(from, len(shard)))]
}

type gatherInWindows struct {
	*allgather
	windows windows
	group   lanes
}

func (a gatherInWindows) run() error {
	return a.windows.run(len(a.recv), func(from, to int) (*group.Work, error) {
		return a.group.StartAllgatherPart(a.own(a.send, from, to), a.recv[from:to], len(a.send), from)
	})
}

type scatterInWindows struct {
	*reduceScatter
	windows windows
	group   lanes
}

func (r scatterInWindows) run() error {
	return r.windows.run(len(r.send), func(from, to int) (*group.Work, error) {
		return r.group.StartReduceScatterPart(r.send[from:to], r.participant.own(r.recv, from, to), len(r.recv), from,
			r.dtype,
			r.op, factor)
	})
}
