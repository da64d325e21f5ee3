package testbed

import (
	"errors"
	"math"
	"time"

	"github.com/vishvananda/netlink"
)

// frameHead is what the kernel counts of a frame beside the MTU: its Ethernet header.
const frameHead = 14

// lateness is how late a timer of a busy machine may be before a link with the
// default burst loses time.
const lateness = 2 * time.Millisecond

// LinkBurst returns how many bytes a link that was idle passes at once; 0 if links have no rate.
func (s Spec) LinkBurst() int {
	switch {
	case s.Rate == 0:
		return 0
	case s.Burst > 0:
		return s.Burst
	}
	return max(4*(s.MTU+frameHead), int(s.Rate/8*lateness.Seconds()))
}

// framed reports whether packets are frames of the MTU's size, for which rates, losses and counters are meant, rather
// than trains of segments: where any link has a rate.
func (s Spec) framed() bool { return s.Rate > 0 || s.Trunk > 0 }

// trunks returns the Spec with the rate of links between switches as the rate of its links.
func (s Spec) trunks() Spec {
	s.Rate, s.Burst = s.Trunk, 0
	return s
}

// reshape is shape of a link that has a rate. The packets in its queue are lost, as where a link is negotiated anew: a
// train of segments there may be longer than the new burst, which would never let the train go, nor the packets behind
// it.
func (s Spec) reshape(h *netlink.Handle, link int) error {
	err := h.QdiscDel(&netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
	})
	return errors.Join(err, s.shape(h, link))
}

// shape gives what a link sends its rate. The queue before it holds a second:
// what senders put in, their own windows bound.
func (s Spec) shape(h *netlink.Handle, link int) error {
	if s.Rate == 0 {
		return nil
	}
	rate := uint64(s.Rate / 8)
	return h.QdiscReplace(&netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
		Rate:       rate,
		Buffer:     netlink.Xmittime(rate, uint32(s.LinkBurst())), // at most 1 GiB
		Limit:      uint32(min(s.Rate/8+float64(s.LinkBurst()), math.MaxInt32)),
	})
}
