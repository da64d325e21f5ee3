package experiment

import (
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
)

// counted is what one operation of a work passes at the kernel's port counters, with the barrier
// before it.
type counted struct {
	perHost  []float64 // bytes that the NIC of a host sends
	intoHost []float64 // and receives
	sent     float64   // bytes, by all switch ports
	received float64

	outOfLeaf []float64 // bytes that each link from a leaf to a spine carries up
}

// count runs a work with k and with 2k operations before the timed one, which are
// like it but in no report. Their difference, over k, is an operation: joining and
// the report are in both. Signs of life during the operations stay in it.
func (l *lab) count(tb *testbed.Testbed, w work, k int) (c counted, err error) {
	once, err := l.traffic(tb, w, k)
	if err != nil {
		return c, err
	}
	twice, err := l.traffic(tb, w, 2*k)
	if err != nil {
		return c, err
	}
	each := func(more, less uint64) float64 { return (float64(more) - float64(less)) / float64(k) }
	for i, p := range twice {
		switch {
		case p.Kind == testbed.HostNIC:
			c.perHost = append(c.perHost, each(p.SentBytes, once[i].SentBytes))
			c.intoHost = append(c.intoHost, each(p.ReceivedBytes, once[i].ReceivedBytes))
		case p.Kind.Switch():
			c.sent += each(p.SentBytes, once[i].SentBytes)
			c.received += each(p.ReceivedBytes, once[i].ReceivedBytes)
			if p.Kind == testbed.UpPort {
				c.outOfLeaf = append(c.outOfLeaf, each(p.SentBytes, once[i].SentBytes))
			}
		}
	}
	return c, nil
}

// traffic counts everything that a run of a work passes at every port.
func (l *lab) traffic(tb *testbed.Testbed, w work, warmup int) (testbed.Counters, error) {
	w.iters, w.warmup = 1, warmup
	before, err := tb.Counters()
	if err != nil {
		return nil, err
	}
	if _, err := l.measure(tb, w); err != nil {
		return nil, err
	}
	after, err := tb.Counters()
	if err != nil {
		return nil, err
	}
	return after.Sub(before), nil
}
