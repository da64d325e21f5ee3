package verbs

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/ibverbs"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
)

// port is a device's queue with its rings, joined to the group of options.
type port struct {
	device   *ibverbs.Device
	queue    *ibverbs.Queue
	member   int     // a socket that holds the host's membership, unless librdmacm does; -1: none
	memory   *memory // of the user
	in, out  *ibverbs.Region
	inSlot   int      // bytes
	outSlot  int      // likewise
	posted   uint64   // datagrams given to the device
	sent     uint64   // of those, gone
	own      [4]byte  // IPv4 address
	gid      [16]byte // on InfiniBand
	arrivals [batchSize]ibverbs.Arrival
	next     int // arrivals not looked at yet: arrivals[next:have]
	have     int
	free     []uint32 // slots to be posted again
	sizes    [batchSize]uint32
}

// batchSize is how many datagrams cross to the device, or back, in one call.
const batchSize = 64

// openPort joins the group with datagrams of so many bytes, and slots for receive of them.
func openPort(o *udp.Options, bytes, receive int) (_ *port, err error) {
	p := &port{member: -1, inSlot: ibverbs.GRH + bytes + spare(o), outSlot: bytes + spare(o)}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if p.device, err = open(o); err != nil {
		return nil, err
	}
	p.own = o.Sources[o.Rank].As4()
	p.memory = newMemory(p.device)
	if bytes > p.device.MTU() {
		return nil,
			fmt.Errorf("verbs: datagrams of %d bytes: device %s takes %d at most", bytes, p.device.Name(), p.device.MTU())
	}
	managed := o.Managed
	if p.device.InfiniBand() {
		managed, p.gid = true, p.device.GID()
	}
	if !managed {
		if p.member, err = batch.Open(unix.AF_INET); err != nil {
			return nil, err
		}
		if err = batch.IPv4.Join(p.member, o.Group, o.Interface.Index); err != nil {
			return nil, ibverbs.Unavailable("join group %v on %s: %w", o.Group, o.Interface.Name, err)
		}
	}
	if p.in, err = p.device.Map(receive*p.inSlot, ibverbs.Local); err != nil {
		return nil, err
	}
	if p.out, err = p.device.Map(sendDepth*p.outSlot, ibverbs.ReadOnly); err != nil {
		return nil, err
	}
	// A key with the highest bit set would be taken for the queue's own (verbs.h), which it is, but of privileged users.
	key := uint32(o.Job^o.Job>>32^uint64(o.Port)) &^ (1 << 31)
	if p.queue, err = p.device.NewQueue(ibverbs.QueueOptions{
		Group: o.Group, Managed: managed, Key: key, Send: sendDepth, Receive: receive, TClass: uint8(o.DSCP << 2),
		Hops: uint8(max(1, o.TTL)),
	}); err != nil {
		return nil, err
	}
	p.free = make([]uint32, receive)
	for slot := range p.free {
		p.free[slot] = uint32(slot)
	}
	return p, p.post()
}

// post has the device fill the slots that are free.
func (p *port) post() error {
	n, err := p.queue.Receive(p.in, p.inSlot, p.free)
	p.free = p.free[:copy(p.free, p.free[n:])]
	return err
}

// look looks for arrivals, unless there are some still, and reports whether there are.
func (p *port) look() (bool, error) {
	if p.next < p.have {
		return true, nil
	}
	n, err := p.queue.Arrived(p.arrivals[:])
	p.next, p.have = 0, n
	return n > 0, err
}

// take returns the next datagram, and who sent it; its slot is free afterwards. A datagram of this rank itself comes
// out empty. On InfiniBand from is no address: the GID there is not one of IPv4.
func (p *port) take() (datagram []byte, from netip.Addr, err error) {
	a := &p.arrivals[p.next]
	p.next++
	p.free = append(p.free, a.Slot)
	if a.Status != 0 {
		return nil, from, fmt.Errorf("device %s: a receive failed with status %d", p.device.Name(), a.Status)
	}
	slot := p.in.Bytes[int(a.Slot)*p.inSlot:][:p.inSlot]
	from, own := p.sender(slot)
	if own && a.From == p.queue.Number() {
		return nil, from, nil
	}
	return slot[ibverbs.GRH:][:min(int(a.Bytes), p.inSlot-ibverbs.GRH)], from, nil
}

// sender returns the address that a datagram came from, and whether this rank's port sent it. The GRH before a datagram
// ends with the sender's address and the group's: with both GIDs on InfiniBand, else with the addresses of the IPv4
// header.
func (p *port) sender(slot []byte) (from netip.Addr, own bool) {
	if p.gid != [16]byte{} {
		return from, [16]byte(slot[ibverbs.GRH-32:]) == p.gid
	}
	source := [4]byte(slot[ibverbs.GRH-8:])
	return netip.AddrFrom4(source), source == p.own
}

// foreign reports whether a datagram is not from the address that its rank has. Where that cannot be told, keys of the
// partition and the group's job keep others out.
func foreign(from, rank netip.Addr) bool { return from.IsValid() && from != rank }

// room returns how many datagrams can be sent now, up to a batch.
func (p *port) room() (n int, err error) {
	if p.posted-p.sent == sendDepth {
		p.sent, err = p.queue.Sent()
	}
	return min(sendDepth-int(p.posted-p.sent), batchSize), err
}

// slot returns the memory of the i-th datagram of the next batch.
func (p *port) slot(i int) []byte {
	return p.out.Bytes[int((p.posted+uint64(i))%sendDepth)*p.outSlot:][:p.outSlot]
}

// send sends a batch of n datagrams from their slots, each with its share of payload, if there is any.
func (p *port) send(n int, payload ibverbs.Payload) error {
	gone, err := p.queue.SendWith(p.out, p.outSlot, sendDepth, p.posted, p.sizes[:n], payload)
	p.posted += uint64(gone)
	return err
}

func (p *port) close() error {
	var errs []error
	if p.queue != nil {
		p.queue.Close()
	}
	if p.memory != nil {
		errs = append(errs, p.memory.close())
	}
	for _, r := range []*ibverbs.Region{p.in, p.out} {
		if r != nil {
			errs = append(errs, r.Close())
		}
	}
	if p.member >= 0 {
		errs = append(errs, unix.Close(p.member))
	}
	if p.device != nil {
		errs = append(errs, p.device.Close())
	}
	p.device = nil
	return errors.Join(errs...)
}
