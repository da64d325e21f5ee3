package faults

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed/launch"
)

// Scene is where a row takes place: a testbed, its nodes if there are any, and a job once it runs.
type Scene struct {
	ctx   context.Context
	row   *Row
	tb    *testbed.Testbed
	nodes *launch.Nodes
	run   *launch.Run
	ranks *ranks
	why   []string // the row is not kept
}

// report notes why the row is not kept.
func (s *Scene) report(format string, args ...any) {
	s.why = append(s.why, fmt.Sprintf(format, args...))
}

// wait is a time in which a fault lasts. It is an error if the end of ctx cuts it short.
func (s *Scene) wait(d time.Duration) error {
	select {
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	case <-time.After(d):
		return nil
	}
}

// host is the namespace of one, node of a place for a node.
func (s *Scene) host(h int) string { return s.tb.Hosts()[h].Namespace }
func (s *Scene) node(n int) string { return s.tb.Nodes()[n].Namespace }

// then does one step after the other until one fails.
func then(steps ...func(*Scene) error) func(*Scene) error {
	return func(s *Scene) error {
		for _, step := range steps {
			if err := step(s); err != nil {
				return err
			}
		}
		return nil
	}
}

func lasts(d time.Duration) func(*Scene) error {
	return func(s *Scene) error { return s.wait(d) }
}

// times repeats steps.
func times(n int, steps ...func(*Scene) error) func(*Scene) error {
	return func(s *Scene) error {
		for range n {
			if err := then(steps...)(s); err != nil {
				return err
			}
		}
		return nil
	}
}

func heal(s *Scene) error { return s.tb.Heal() }

// target is a host or a node of a scene.
type target func(*Scene) string

func host(h int) target { return func(s *Scene) string { return s.host(h) } }
func node(n int) target { return func(s *Scene) string { return s.node(n) } }

func loss(at target, l testbed.Loss) func(*Scene) error {
	return func(s *Scene) error { return s.tb.SetLoss(at(s), l) }
}

// flow is a loss of what goes between two places.
func flow(at, peer target, l testbed.Loss) func(*Scene) error {
	return func(s *Scene) error {
		l := l
		for _, h := range s.tb.Hosts() {
			if h.Namespace == peer(s) {
				l.Peer = h.Addr
			}
		}
		for _, n := range s.tb.Nodes() {
			if n.Namespace == peer(s) {
				l.Peer = n.Addr
			}
		}
		return s.tb.SetLoss(at(s), l)
	}
}

// everywhere does something to every host.
func everywhere(f func(target) func(*Scene) error) func(*Scene) error {
	return func(s *Scene) error {
		for h := range s.tb.Hosts() {
			if err := f(host(h))(s); err != nil {
				return err
			}
		}
		return nil
	}
}

func link(at target, up bool) func(*Scene) error {
	return func(s *Scene) error { return s.tb.SetLink(at(s), up) }
}

func netInterface(at target, up bool) func(*Scene) error {
	return func(s *Scene) error { return s.tb.SetInterface(at(s), up) }
}

func address(at target) func(*Scene) error {
	return func(s *Scene) error { return s.tb.RenewAddress(at(s)) }
}

func mtu(at target, bytes int) func(*Scene) error {
	return func(s *Scene) error { return s.tb.SetMTU(at(s), bytes) }
}

func rate(at target, bits float64) func(*Scene) error {
	return func(s *Scene) error { return s.tb.SetRate(at(s), bits) }
}

// delay makes what goes to a place so much later, for a time.
func delay(at target, d, lasts time.Duration) func(*Scene) error {
	return func(s *Scene) error {
		ctx, cancel := context.WithTimeout(s.ctx, lasts)
		defer cancel()
		return s.tb.Delay(ctx, at(s), d, nil)
	}
}

func aged(at target) func(*Scene) error {
	return func(s *Scene) error { return s.tb.SetAged(at(s), true) }
}

// signal sends a signal to a rank.
func signal(rank int, sig syscall.Signal) func(*Scene) error {
	return func(s *Scene) error { return s.run.Signal(rank, sig) }
}

// signalPlace sends one to all that runs in a place, such as a node.
func signalPlace(at target, sig syscall.Signal) func(*Scene) error {
	return func(s *Scene) error {
		n, err := s.tb.Signal(at(s), sig)
		if err == nil && n == 0 {
			err = fmt.Errorf("nothing runs in %s", at(s))
		}
		return err
	}
}

// descriptors bounds those of all that runs in a place; negative: no more.
func descriptors(at target, most int) func(*Scene) error {
	return func(s *Scene) error {
		n, err := s.tb.SetDescriptors(at(s), most)
		if err == nil && n == 0 {
			err = fmt.Errorf("nothing runs in %s", at(s))
		}
		return err
	}
}

func stopNode(n int) func(*Scene) error {
	return func(s *Scene) error { return s.nodes.Stop(n) }
}

func startNode(n int) func(*Scene) error {
	return func(s *Scene) error { return s.nodes.Start(s.ctx, n) }
}

// inside does something on a thread in a place's network namespace.
func inside(at target, f func(*Scene) error) func(*Scene) error {
	return func(s *Scene) error { return s.tb.In(at(s), func() error { return f(s) }) }
}

// errHang says that a job did not come to the end that it should.
var errHang = errors.New("it hangs")
