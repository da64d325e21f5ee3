package testbed

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/config"
)

// Kernels may lack netem, so this process delays frames. Frames that the switch is about to send to
// a place are turned aside to a veth of the relay, which gives them to the port again when it is
// time.

const (
	delayTable = "delay-"
	asideName  = "aside-" // of the veth's end that the switch sends to
	relayName  = "relay-" // of the relay's
	relayMark  = 0x6d636173
	maxDelay   = 10 * time.Second
	// relayBuffer is of the relay's socket: what comes while it is kept from a core.
	relayBuffer = 64 << 20
)

// Delay makes everything that goes to a place so much later, until ctx ends. Frames that are still
// delayed then are lost. ready, which may be nil, is closed when the delay has begun.
func (t *Testbed) Delay(ctx context.Context, place string, d time.Duration, ready chan<- struct{}) error {
	if d <= 0 || d > maxDelay {
		return config.Mistakef("testbed: a delay of %v: want more than 0s, up to %v", d, maxDelay)
	}
	return t.link(place, func(sw, _ *inside, s station) error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = asideName+s.name, t.Spec().MTU
		if err := sw.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: relayName + s.name}); err != nil {
			return fmt.Errorf("it is delayed already, or what delayed it was killed (`mcast-lab testbed up` mends that): %w",
				err)
		}
		err := t.relay(ctx, sw, s, d, ready)
		return errors.Join(err, sw.undelay(s))
	})
}

// undelay removes what delays a place, if anything does.
func (i *inside) undelay(s station) error {
	c, err := nftables.New(nftables.WithNetNSFd(int(i.ns)))
	if err != nil {
		return err
	}
	dropTable(c, nftables.TableFamilyNetdev, delayTable+s.name)
	if err := c.Flush(); err != nil {
		return fmt.Errorf("nftables: delay of %s: %w", s.name, err)
	}
	aside, err := i.LinkByName(asideName + s.name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err != nil {
		return err
	}
	return i.LinkDel(aside)
}

// relay moves frames from the veth to the port until ctx ends.
func (t *Testbed) relay(ctx context.Context, sw *inside, s station, d time.Duration, ready chan<- struct{}) error {
	var index [3]int
	for n, name := range []string{asideName + s.name, relayName + s.name, s.name} {
		link, err := sw.LinkByName(name)
		if err != nil {
			return err
		}
		index[n] = link.Attrs().Index
		if err := sw.LinkSetUp(link); err != nil {
			return err
		}
	}
	if err := awaitCarriers(sw.Handle, asideName+s.name, relayName+s.name); err != nil {
		return err
	}
	var in, out int
	if err := t.In(t.layout.namespace(switches), func() (err error) {
		if in, err = packetSocket(index[1]); err == nil {
			out, err = packetSocket(index[2])
		}
		return err
	}); err != nil {
		return err
	}
	defer func() { _ = unix.Close(out) }()
	if err := errors.Join(unix.SetsockoptInt(in, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, relayBuffer),
		unix.SetsockoptInt(out, unix.SOL_SOCKET, unix.SO_MARK, relayMark), aside(sw, s, index[0])); err != nil {
		return errors.Join(err, unix.Close(in))
	}
	if ready != nil {
		close(ready)
	}
	return carry(ctx, in, out, d)
}

// aside turns what the switch sends to a place to a device, unless the relay has sent it.
func aside(sw *inside, s station, device int) error {
	c, err := nftables.New(nftables.WithNetNSFd(int(sw.ns)))
	if err != nil {
		return err
	}
	table := c.AddTable(&nftables.Table{Name: delayTable + s.name, Family: nftables.TableFamilyNetdev})
	chain := c.AddChain(&nftables.Chain{Name: s.name, Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookEgress, Priority: nftables.ChainPriorityFilter, Device: s.name})
	c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(relayMark)},
		&expr.Immediate{Register: 1, Data: binaryutil.NativeEndian.PutUint32(uint32(device))},
		&expr.Dup{RegDev: 1, IsRegDevSet: true},
		&expr.Verdict{Kind: expr.VerdictDrop},
	}})
	if err := c.Flush(); err != nil {
		return fmt.Errorf("nftables: delay of %s (the kernel needs CONFIG_NETFILTER_EGRESS and CONFIG_NFT_DUP_NETDEV): %w",
			s.name, err)
	}
	return nil
}

// packetSocket returns a socket for all frames of a device. Each frame has a header that says which
// fields are yet to be computed, such as checksums: links of the same machine leave them out.
func packetSocket(device int) (fd int, err error) {
	const all = unix.ETH_P_ALL << 8 // in network order
	if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all); err != nil {
		return -1, err
	}
	if err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: device})
	}
	if err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// delayed is a frame on its way.
type delayed struct {
	frame []byte
	due   time.Time
}

// carry takes frames from one socket, which it closes, and gives each to the other when it is due.
func carry(ctx context.Context, in, out int, d time.Duration) error {
	const window = 100 * time.Millisecond // between looks at ctx
	queue := make(chan delayed, 1<<16)
	failed := make(chan error, 1)
	if err := unix.SetsockoptTimeval(in, unix.SOL_SOCKET, unix.SO_RCVTIMEO,
		&unix.Timeval{Usec: window.Microseconds()}); err != nil {
		return errors.Join(err, unix.Close(in))
	}
	go func() {
		defer close(queue)
		b := make([]byte, 1<<17)
		for ctx.Err() == nil {
			n, from, err := unix.Recvfrom(in, b, 0)
			if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil {
				failed <- err
				return
			}
			if l, is := from.(*unix.SockaddrLinklayer); is && l.Pkttype == unix.PACKET_OUTGOING {
				continue
			}
			queue <- delayed{append([]byte(nil), b[:n]...), time.Now().Add(d)}
		}
	}()
	for f := range queue {
		sleep(ctx, time.Until(f.due))
		if ctx.Err() == nil {
			_, _ = unix.Write(out, f.frame) // the port may be down, or its queue full
		}
	}
	select {
	case err := <-failed:
		return errors.Join(err, unix.Close(in))
	default:
		return unix.Close(in)
	}
}
