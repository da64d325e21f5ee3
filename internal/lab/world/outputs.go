package world

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/group"
)

// kept is the result of an Allgather in memory that the ranks of a host share. The program holds it until
// it comes to a later step, and looks at every byte again before it lets go.
type kept struct {
	place       *group.Output
	step, until int
	check       func() string
}

// memory returns where the result of an Allgather of shards of n bytes goes: to a place that was
// reserved, if the call asks for one and there is one.
func (r *rank) memory(g *group.Group, step, n int, c *Call) ([]byte, error) {
	size := r.s.Net.Ranks
	if c.Keep == 0 {
		return make([]byte, size*n), nil
	}
	p := g.Reserve(n)
	if p == nil {
		return make([]byte, size*n), nil
	}
	recv, err := p.Wait(time.Now().Add(look))
	for errors.Is(err, context.DeadlineExceeded) && r.ctx.Err() == nil {
		recv, err = p.Wait(time.Now().Add(look))
	}
	if err != nil {
		return nil, err
	}
	if recv == nil {
		return make([]byte, size*n), nil
	}
	r.kept = append(r.kept, kept{p, step, step + c.Keep, func() string {
		return differs(recv, func(k int) byte { return given(step, k/n, k%n) })
	}})
	return recv, nil
}

// letGo gives back what the program does not hold any more when it comes to a step, of results that it
// has waited for: those before another step.
func (r *rank) letGo(step, waited int) {
	held := r.kept
	r.kept = nil
	for _, k := range held {
		o := r.step(k.step)
		if k.until > step || k.step >= waited || !o.ended {
			r.kept = append(r.kept, k)
			continue
		}
		if wrong := k.check(); o.err == nil && wrong != "" {
			r.mu.Lock()
			r.steps[k.step].wrong = "while it was held: " + wrong
			r.mu.Unlock()
		}
		k.place.Release()
	}
}

// share draws, where ranks are on fewer hosts than there are of them, that results of Allgathers lie in
// memory that they share, often so little that each place is used again soon.
func (s *Scenario) share(seed uint64) {
	d := draw{rand.New(rand.NewPCG(seed, 0x6f757470757473))}
	if len(s.Net.On) == 0 || d.chance(0.3) {
		return
	}
	s.Outputs = of(d, 8<<10, 8<<10, 16<<10, 64<<10, 1<<20)
	if slices.ContainsFunc(s.Calls, func(c Call) bool { return c.Kind == Allgather && c.Bytes > 100_000 }) {
		s.Outputs = 64 << 20
	}
	for i := range s.Calls {
		if c := &s.Calls[i]; c.Kind == Allgather && d.chance(0.8) {
			c.Keep = 1 + d.IntN(3)
		}
	}
}
