package experiment

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
)

// drain is datagrams without a protocol: a thread on one core sends as many as a socket of another
// host certainly queues, then goes to another core and receives them to where they belong. Neither
// half waits for the other, so each half takes as long as it needs its core.
type drain struct {
	use     batch.Kernel
	chunk   int    // bytes of a datagram's payload
	source  []byte // bytes to send
	dest    []byte // where they are received, as long as source
	from    int    // sockets
	to      int
	sending *batch.Outbox
	coming  *batch.Inbox
	sender  batch.Sender
	queue   int // datagrams that the receiver's socket holds for certain
	calls   atomic.Uint64

	sendTime, receiveTime time.Duration // of the thread
}

// drainPort is where the second host of a testbed receives.
const drainPort = 29400

// newDrain makes the sockets, from the first host of a testbed to the second.
func newDrain(tb *testbed.Testbed, offload batch.Offload, chunk int, source, dest []byte) (d *drain, err error) {
	d = &drain{chunk: chunk, source: source, dest: dest, from: -1, to: -1}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	kernel, err := batch.Probe()
	if err != nil {
		return d, err
	}
	if d.use, _, err = kernel.Limit(offload, true); err != nil {
		return d, err
	}
	hosts := tb.Hosts()
	at, err := batch.Sockaddr(netip.AddrPortFrom(hosts[1].Addr, drainPort))
	if err != nil {
		return d, err
	}
	if err := tb.In(hosts[1].Namespace, func() error { return d.openReceiver(at) }); err != nil {
		return d, err
	}
	if err := tb.In(hosts[0].Namespace, func() error { return d.openSender(at) }); err != nil {
		return d, err
	}
	if d.sending, err = batch.NewOutbox(wire.DataSize, &d.calls); err != nil {
		return d, err
	}
	d.coming, err = batch.NewInbox(wire.DataSize, chunk, &d.calls)
	return d, err
}

func (d *drain) openReceiver(at unix.Sockaddr) (err error) {
	if d.to, err = batch.Open(unix.AF_INET); err != nil {
		return err
	}
	// as much as there may be
	options := []batch.Option{{Name: "SO_RCVBUF", Level: unix.SOL_SOCKET, Opt: unix.SO_RCVBUF, Value: 1 << 30}}
	if d.use.Merge {
		options = append(options, batch.Merging)
	}
	if err := batch.Set(d.to, options...); err != nil {
		return err
	}
	room, err := unix.GetsockoptInt(d.to, unix.SOL_SOCKET, unix.SO_RCVBUF)
	if err != nil {
		return err
	}
	d.queue = batch.Queue(room, d.packet(), false)
	return unix.Bind(d.to, at)
}

func (d *drain) openSender(at unix.Sockaddr) (err error) {
	if d.from, err = batch.Open(unix.AF_INET); err != nil {
		return err
	}
	d.sender = batch.Sender{FD: d.from, Use: d.use, Headers: batch.IPv4.Headers}
	return unix.Connect(d.from, at)
}

// packet is the length of an IP packet.
func (d *drain) packet() int { return batch.IPv4.Headers + wire.DataSize + d.chunk }

func (d *drain) close() error {
	errs := []error{d.sending.Close(), d.coming.Close()}
	for _, fd := range []int{d.from, d.to} {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	return errors.Join(errs...)
}

// run passes the whole source once, from one core to another, on a thread that ends with it.
func (d *drain) run(sends, receives int) error {
	clear(d.dest)
	whole := slices.Collect(slices.Chunk(d.source, d.chunk))
	for done := 0; done < len(whole); {
		n := min(d.queue, len(whole)-done)
		if err := runOn(sends); err != nil {
			return err
		}
		if err := timed(&d.sendTime, func() error { return d.send(whole[done : done+n]) }); err != nil {
			return err
		}
		if err := runOn(receives); err != nil {
			return err
		}
		if err := d.receive(d.dest[done*d.chunk:min((done+n)*d.chunk, len(d.dest))], n); err != nil {
			return err
		}
		done += n
	}
	if !bytes.Equal(d.source, d.dest) {
		return errors.New("what was received is not what was sent")
	}
	return nil
}

// send sends payloads, a datagram each.
func (d *drain) send(payloads [][]byte) error {
	for len(payloads) > 0 || d.sending.Added() > 0 {
		for len(payloads) > 0 && d.sending.Add(payloads[0]) != nil {
			payloads = payloads[1:]
		}
		for first := 0; first < d.sending.Added(); {
			sent, _, e := d.sending.Send(&d.sender, first)
			switch {
			case e == unix.EAGAIN:
				if err := await(d.from, unix.POLLOUT); err != nil {
					return err
				}
			case e != 0:
				return fmt.Errorf("send datagrams of %d bytes: %w", d.chunk, e)
			}
			first += sent
		}
		d.sending.Forget()
	}
	return nil
}

// receive takes so many datagrams out of the socket, to one place after another.
func (d *drain) receive(places []byte, n int) error {
	most := batch.Max
	if d.use.Merge {
		most = 1 // one message has many
	}
	for n > 0 {
		if err := await(d.to, unix.POLLIN); err != nil {
			return fmt.Errorf("%d datagrams of %d bytes did not come: %w", n, d.chunk, err)
		}
		err := timed(&d.receiveTime, func() error {
			for n > 0 {
				switch e := d.coming.Receive(d.to, d.use, places, d.chunk, most); {
				case e == unix.EAGAIN:
					return nil
				case e != 0:
					return fmt.Errorf("receive datagrams of %d bytes: %w", d.chunk, e)
				}
				var one batch.Datagram
				for d.coming.Next(&one) {
					if len(one.Payload) > len(places) {
						return errors.New("what came was not sent here")
					}
					if one.Place < 0 {
						copy(places, one.Payload)
					}
					places, n = places[len(one.Payload):], n-1
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// await waits until a socket is ready, for a second at most.
func await(fd int, events int16) error {
	for {
		switch n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: events}}, 1000); {
		case errors.Is(err, unix.EINTR):
		case err == nil && n == 0:
			return errors.New("nothing in a second")
		default:
			return err
		}
	}
}

// randomBytes are of no pattern, so that what lies at a wrong place shows.
func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b) // it cannot fail
	return b
}

// copyTime is how long a thread on a core takes to copy so many bytes.
func copyTime(core int, source, dest []byte) (took time.Duration, err error) {
	if err := runOn(core); err != nil {
		return 0, err
	}
	copy(dest, source) // the first touch of a page is not a copy
	err = timed(&took, func() error { copy(dest, source); return nil })
	return took, err
}

// runOn moves the calling thread, which must be locked, to a core.
func runOn(core int) error {
	var set unix.CPUSet
	set.Set(core)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("run on core %d: %w", core, err)
	}
	return nil
}

// timed adds to a time what f takes of the calling thread's core.
func timed(took *time.Duration, f func() error) error {
	before, err := threadTime()
	if err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	after, err := threadTime()
	*took += after - before
	return err
}

func threadTime() (time.Duration, error) {
	var t unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano()), err
}
