// Package verbs is the fabric for hosts with RDMA devices. Chunks of Allgather and Broadcast travel as UD datagrams to
// a multicast group (Khalilov et al., SC24, III-B), control messages by the TCP connections that the fabric udp has.
// Repairs take these, too, or are read from the left neighbour's memory (pulls.go).
//
// A chunk is copied to a registered ring and sent from there, a batch with one doorbell; or, if the user has registered
// the memory that it lies in (Gather.Register), the header from the ring and the chunk from where it lies. At a
// receiver the device puts it behind 40 bytes (GRH) into a slot of another ring; from there it is copied to its place.
// Datagrams are sealed and opened in these rings, or beside them; encrypted ones are always copied. The receiver's ring
// is the only queue between two ranks, and a datagram that finds no slot is lost without a word: Traits say how many
// slots there are.
package verbs

import (
	"errors"
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/ibverbs"
	"github.com/torch-mcast/torch-mcast/internal/transport/seal"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
)

// depth is how many datagrams wait at most to be taken from the device: 4.2 MB with datagrams of 4096 bytes, half of
// what most distributions let an ordinary user lock. sendDepth is how many are under way to it.
const (
	depth     = 1024
	sendDepth = 256
)

// Fit opens the device on o.Interface and shortens the MTU there to the device's: a packet is a UDP packet with as
// large a payload. Its errors wrap fabric.ErrUnavailable where the machine is in the way.
func Fit(o *udp.Options) error {
	d, err := open(o)
	if err != nil {
		return err
	}
	narrow := *o.Interface
	narrow.MTU = d.MTU() + batch.IPv4.Headers
	o.Interface = &narrow
	return d.Close()
}

// Try opens all that Open needs, for options that Fit has fitted, and gives it back. A Prober is open meanwhile; if the
// rings of Streams between so many ranks are larger than its own, they must be had as well, since no Reduce-Scatter can
// choose another fabric later; with a key streams go by TCP. It returns the device's name.
func Try(o *udp.Options, ranks int) (device string, err error) {
	full := o.Interface.MTU - batch.IPv4.Headers
	bytes := full
	if o.Chunk > 0 {
		bytes = bytesFor(o)
	}
	p, err := openPort(o, bytes, depth)
	if err != nil {
		return "", err
	}
	if more := ringsFor(ranks) - probing(full); more > 0 && !o.Seals.Keyed() {
		var rings *ibverbs.Region
		if rings, err = p.device.Map(more, ibverbs.RemoteWrite); err == nil {
			err = rings.Close()
		}
	}
	return p.device.Name(), errors.Join(err, p.close())
}

func open(o *udp.Options) (*ibverbs.Device, error) {
	switch {
	case o.Interface == nil:
		return nil, errors.New("verbs: no interface given")
	case len(o.Sources) != o.Size || o.Rank < 0 || o.Rank >= o.Size:
		return nil, fmt.Errorf("verbs: addresses of %d ranks: want all %d", len(o.Sources), o.Size)
	case !o.Group.Is4() || !o.Group.IsMulticast():
		return nil,
			ibverbs.Unavailable("group %v: want one of IPv4, 224.0.0.0 to 239.255.255.255 (MCAST_GROUP, MCAST_FAMILY=4)",
				o.Group)
	case len(o.Rails) > 0:
		return nil, ibverbs.Unavailable("several interfaces: it takes one, so far (MCAST_IFACE)")
	}
	return ibverbs.Open(o.Interface, o.Sources[o.Rank])
}

// bytesFor returns the bytes of a full datagram.
func bytesFor(o *udp.Options) int { return o.Head() + o.Chunk }

// spare returns how many bytes slots hold beyond a datagram, for encryption and decryption there.
func spare(o *udp.Options) int {
	if o.Seals.Encrypts() {
		return seal.Spare
	}
	return 0
}
