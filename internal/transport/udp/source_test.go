package udp

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// host is an address of a host's loopback network.
func host(f *batch.Family, i int) netip.Addr {
	if f == batch.IPv4 {
		return netip.AddrFrom4([4]byte{127, 0, byte(i >> 8), byte(i)})
	}
	return netip.AddrFrom16([16]byte{0xfd, 0x7f, 14: byte(i >> 8), 15: byte(i)})
}

// TestForgedSource has a stranger who knows all about a job send what a rank would, from
// another address, before that rank does.
func TestForgedSource(t *testing.T) {
	for i, offload := range slices.Concat(offloads, offloads) {
		f := families[i/len(offloads)]
		t.Run(fmt.Sprintf("%s/%v", f.Name, offload), func(t *testing.T) {
			ns := onLoopback(t, f)
			sources := []netip.Addr{host(f, 1), host(f, 2), host(f, 3)}
			ranks, o := groupIn(t, ns, f, 3, func(o *Options) { o.Chunk, o.Offload, o.Sources = 1024, offload, sources })
			forged := wellFormed(o.Job, 1024, func(h *wire.Data, b []byte) { h.Root = 0; h.Put(b) })
			send := func(from int) {
				o.Rank, o.Sources = 0, []netip.Addr{host(f, from)}
				var fd int
				var err error
				within(ns, func() { fd, err = openSender(&o, 0) })
				require.NoError(t, err)
				defer func() { require.NoError(t, unix.Close(fd)) }()
				_, err = unix.Write(fd, forged)
				require.NoError(t, err)
			}
			send(9) // no rank's
			send(3) // another rank's
			s := newSink(1, 3, 1024, 1024)
			require.Zero(t, polled(ranks[1], s, 100), "lo delivers before the send returns, so there is nothing")
			send(1)
			require.Equal(t, 1, polled(ranks[1], s, 100), "but for the address it is what the rank sends")
			require.Equal(t, 1, polled(ranks[2], newSink(2, 3, 1024, 1024), 100))
			exchange(t, ranks, 100*1024+7)
		})
	}
}

// bound is a socket at an address of lo.
func bound(t *testing.T, ns *systest.Namespace, at netip.Addr) (fd int) {
	t.Helper()
	var err error
	within(ns, func() { fd, err = batch.Open(batch.FamilyOf(at).Domain) })
	require.NoError(t, err)
	addr, err := batch.Sockaddr(netip.AddrPortFrom(at, 0))
	require.NoError(t, err)
	require.NoError(t, unix.Bind(fd, addr))
	return fd
}

// filtered is a socket on lo with the filter of the last rank of a job, and a way to send to it
// as any rank from any address.
func filtered(t *testing.T, ns *systest.Namespace, o *Options) (passes func(root int, from netip.Addr) bool) {
	t.Helper()
	fd := bound(t, ns, host(batch.FamilyOf(o.Sources[0]), 1))
	t.Cleanup(func() { require.NoError(t, unix.Close(fd)) })
	require.NoError(t, attachFilter(fd, o))
	at, err := unix.Getsockname(fd)
	require.NoError(t, err)
	return func(root int, from netip.Addr) bool {
		sender := bound(t, ns, from)
		defer func() { require.NoError(t, unix.Close(sender)) }()
		datagram := wellFormed(o.Job, 10, func(h *wire.Data, b []byte) { h.Root = uint16(root); h.Put(b) }) // Below maxRanks.
		require.NoError(t, unix.Sendto(sender, datagram, 0, at))
		n, _, err := unix.Recvfrom(fd, make([]byte, 100), 0)
		require.True(t, err == nil && n == len(datagram) || errors.Is(err, unix.EAGAIN), "%d bytes, %v", n, err)
		return err == nil
	}
}

// TestFilterKnowsEveryRank has the kernel tell the addresses of ranks apart, eight ranks to a
// host, in groups of all sizes.
func TestFilterKnowsEveryRank(t *testing.T) {
	for _, f := range families {
		t.Run(f.Name, func(t *testing.T) { filterKnowsEveryRank(t, f, onLoopback(t, f)) })
	}
}

func filterKnowsEveryRank(t *testing.T, f *batch.Family, ns *systest.Namespace) {
	rng := rand.New(rand.NewPCG(1, 2))
	most := mostSpans([]netip.Addr{localhost(f)})
	for _, hosts := range []int{1, 2, 3, 7, 64, most - 1, most, most + 1, 4 * most} {
		t.Run(fmt.Sprint(hosts), func(t *testing.T) {
			o := Options{Size: 8 * hosts, Rank: 8*hosts - 1, Job: rng.Uint64()}
			for h, i := range rng.Perm(hosts) {
				if hosts > most {
					i = h // Neighbours have addresses close by, as in a cluster.
				}
				for range 8 {
					o.Sources = append(o.Sources, host(f, 2+i))
				}
			}
			passes := filtered(t, ns, &o)
			for range 200 {
				root, other := rng.IntN(o.Size-1), rng.IntN(o.Size)
				require.True(t, passes(root, o.Sources[root]), "rank %d", root)
				own := o.Sources[root] == o.Sources[other]
				if near := max(root, other)/8-min(root, other)/8 < 4; hosts <= most || !near {
					require.Equal(t, own, passes(root, o.Sources[other]), "rank %d as rank %d", other, root)
				}
				require.False(t, passes(root, host(f, 200<<8)))
			}
		})
	}
}

// TestFilterFits has the kernel allow little memory for a socket's options, as old kernels do.
func TestFilterFits(t *testing.T) {
	const limit = "/proc/sys/net/core/optmem_max"
	ns := systest.NewNamespace(t)
	ns.IP(t, "link set lo up")
	var err error
	ns.Do(func() { _, err = os.Stat(limit) })
	if err != nil {
		t.Skipf("Linux before 6.9 has one limit for all namespaces: %v", err)
	}
	o := Options{Size: 2000, Rank: 1999, Job: 7}
	for r := range o.Size {
		o.Sources = append(o.Sources, host(batch.IPv4, 2+r))
	}
	var whole, less error
	ns.Do(func() {
		if err = os.WriteFile(limit, []byte("20480"), 0); err != nil {
			return
		}
		var fd int
		if fd, err = batch.Open(unix.AF_INET); err != nil {
			return
		}
		less = attachFilter(fd, &o)
		whole = attach(fd, filter(&o, spansOf(o.Sources, mostSpans(o.Sources))))
		err = unix.Close(fd)
	})
	require.NoError(t, err)
	require.ErrorIs(t, whole, unix.ENOMEM)
	require.NoError(t, less)
}

// TestSecondAddress has ranks that others reach at an address that is not their interface's first.
func TestSecondAddress(t *testing.T) {
	ns := systest.Cable(t, 1500)
	for i, n := range ns {
		n.IP(t, fmt.Sprintf("addr add 10.8.0.%d/24 dev v%d", i+1, i))
	}
	exchange(t, groupOn(t, ns, batch.IPv4, func(o *Options) {
		o.Sources = nil
		for r := range o.Size {
			o.Sources = append(o.Sources, netip.AddrFrom4([4]byte{10, 8, 0, byte(r/2 + 1)}))
		}
	}), 100000)
}

// localhost is the address of lo.
func localhost(f *batch.Family) netip.Addr {
	if f == batch.IPv4 {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.IPv6Loopback()
}
