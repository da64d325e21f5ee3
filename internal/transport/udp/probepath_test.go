package udp

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/seal"
)

// probeKey is what the ranks of a group know.
var probeKey = make([]byte, seal.KeySize)

// probing returns options of a rank of three that seals probes with a key; without one it does not.
func probing(f *batch.Family, rank int, key []byte) *Options {
	o := &Options{Rank: rank, Size: 3, Job: 7, Group: netip.MustParseAddr("239.1.2.3"), Port: 7000}
	if f == batch.IPv6 {
		o.Group = netip.MustParseAddr("ff15::3")
	}
	if key != nil {
		o.Probes = seal.New(seal.Tags, key, uint32(rank))
	}
	return o
}

// probeOf returns a probe of a rank to an address, in a datagram of 1000 bytes.
func probeOf(o *Options, to netip.AddrPort) []byte {
	b := make([]byte, 1000)
	NewProbePath(o, to).Put(b)
	return b
}

func fromAnywhere(int) bool { return true }

// TestProbesWithoutTheKey: nobody without the key has a probe count, neither a made nor a recorded one.
func TestProbesWithoutTheKey(t *testing.T) {
	otherKey := append([]byte{1}, probeKey[1:]...)
	for _, f := range families {
		t.Run(f.Name, func(t *testing.T) {
			here, zero, stranger, plain := probing(f, 1, probeKey), probing(f, 0, probeKey), probing(f, 0, otherKey),
				probing(f, 0, nil)
			group, next := netip.AddrPortFrom(here.Group, 7000), netip.AddrPortFrom(here.Group.Next(), 7000)
			own, another := netip.AddrPortFrom(localhost(f), 9000), netip.AddrPortFrom(localhost(f).Next(), 9000)
			ours := func(to netip.AddrPort, change func(b []byte)) []byte {
				b := probeOf(zero, to)
				if change != nil {
					change(b)
				}
				return b
			}
			of := func(o *Options, change func(o *Options)) *Options {
				changed := *o
				change(&changed)
				return &changed
			}
			for _, to := range []netip.AddrPort{group, own} {
				path := NewProbePath(here, to)
				other := map[netip.AddrPort]netip.AddrPort{group: own, own: group}[to]
				take := func(b []byte) bool {
					_, counts := path.Take(b, len(b), fromAnywhere)
					return counts
				}
				latest := ours(to, nil)
				require.True(t, take(latest))
				for name, b := range map[string][]byte{
					"another key": probeOf(stranger, to),
					"no tag":      probeOf(plain, to),
					"again":       latest,
					"another size": ours(to,
						func(b []byte) { binary.BigEndian.PutUint32(b[14:], uint32(500+f.Headers)) })[:500],
					"cut":    ours(to, nil)[:999],
					"longer": append(ours(to, nil), 0),
					"cut to its header": ours(to,
						func(b []byte) { binary.BigEndian.PutUint32(b[14:], uint32(wire.ProbeSize+f.Headers)) })[:wire.ProbeSize],
					"another rank's name": ours(to, func(b []byte) { b[13] = 2 }),
					"the other way":       ours(other, nil),
					"said to be this way": ours(other, func(b []byte) { b[3] ^= 1 }),
					"another subgroup's":  ours(next, nil),
					"to another rank":     ours(another, nil),
					"to another port":     ours(netip.AddrPortFrom(to.Addr(), to.Port()+1), nil),
					"another job's":       probeOf(of(zero, func(o *Options) { o.Job++ }), to),
					"of no rank":          probeOf(of(zero, func(o *Options) { o.Rank = 3 }), to),
					"nothing":             {},
				} {
					require.False(t, take(b), "%v: %s", to, name)
				}
				b := ours(to, nil)
				for bit := range 8 * (wire.ProbeSize + seal.MaxSize) {
					b[bit/8] ^= 1 << (bit % 8)
					require.False(t, take(b), "%v: bit %d", to, bit)
					b[bit/8] ^= 1 << (bit % 8)
				}
				_, counts := path.Take(b, len(b), func(int) bool { return false })
				require.False(t, counts, "from another address")
				require.True(t, take(b), "nothing of that spoils the true one")
				two := probing(f, 2, probeKey)
				require.True(t, take(probeOf(two, to)), "each rank has a counter of its own")
			}
		})
	}
}

// TestReorderedProbes: of the probes that a rank sends, to several groups and to others by turns, each counts once, in
// any order and however often it comes.
func TestReorderedProbes(t *testing.T) {
	zero, one := probing(batch.IPv4, 0, probeKey), probing(batch.IPv4, 1, probeKey)
	var to []netip.AddrPort
	for group := one.Group; len(to) < 16; group = group.Next() {
		to = append(to, netip.AddrPortFrom(group, one.Port))
	}
	to = append(to, netip.AddrPortFrom(localhost(batch.IPv4), 9000))
	var sent [][]byte // on the last path
	for range 30 {
		for _, to := range to {
			b := probeOf(zero, to)
			if !to.Addr().IsMulticast() {
				sent = append(sent, b)
			}
		}
	}
	path := NewProbePath(one, to[len(to)-1])
	slices.Reverse(sent) // the first is overtaken by all others
	for _, want := range []bool{true, false} {
		for i, b := range sent {
			_, counts := path.Take(b, len(b), fromAnywhere)
			require.Equal(t, want, counts, i)
		}
		rand.Shuffle(len(sent), func(i, j int) { sent[i], sent[j] = sent[j], sent[i] })
	}
}

// TestProbesWithoutASecret travel as they did before there were tags.
func TestProbesWithoutASecret(t *testing.T) {
	for _, f := range families {
		o := probing(f, 2, nil)
		for _, to := range []netip.AddrPort{netip.AddrPortFrom(o.Group, o.Port), netip.AddrPortFrom(localhost(f), 9000)} {
			want := make([]byte, 1000)
			probe := wire.Probe{Unicast: to.Addr() == localhost(f), Job: o.Job, Rank: 2, Packet: uint32(1000 + f.Headers)}
			probe.Put(want)
			b := probeOf(o, to)
			require.Equal(t, want, b)
			path := NewProbePath(o, to)
			for range 2 {
				got, counts := path.Take(b, len(b), fromAnywhere)
				require.True(t, counts)
				require.Equal(t, probe, got)
			}
		}
	}
}

// TestProbers: of what a stranger sends to the sockets of a rank nothing is heard, and nothing of what he repeats.
func TestProbers(t *testing.T) {
	for _, f := range families {
		t.Run(f.Name, func(t *testing.T) {
			ns := onLoopback(t, f)
			group, port := freshGroup(f)
			job := rand.Uint64()
			open := func(rank int, key []byte) (p *Prober) {
				o := Options{
					Rank: rank, Size: 2, Job: job, Group: group, Port: port, Subgroups: 2, Interface: lo(t),
					Sources: []netip.Addr{localhost(f), localhost(f)},
					Probes:  seal.New(seal.Tags, key, uint32(rank)),
				}
				var err error
				within(ns, func() { p, err = OpenProber(o) })
				require.NoError(t, err)
				t.Cleanup(p.Close)
				return p
			}
			zero, one, stranger := open(0, probeKey), open(1, probeKey), open(0, append([]byte{1}, probeKey[1:]...))
			at, err := one.Port()
			require.NoError(t, err)
			to := netip.AddrPortFrom(localhost(f), at)
			heard := func() Heard { // with the next true probe, and what was sent before it
				one.Listen(time.Minute, func(h []Heard) bool { return h[0].Multicast > 0 && h[0].Unicast > 0 })
				return one.Heard()[0]
			}
			send := func(from *Prober, packet int) {
				require.NoError(t, from.Multicast(packet))
				require.NoError(t, from.Unicast(to, packet))
			}
			send(stranger, 1000) // larger than the true one behind it, so that it would show
			send(zero, 900)
			require.Equal(t, Heard{Multicast: 900, Unicast: 900, Multicasts: 1, Unicasts: 1}, heard())
			again := append([]byte{}, zero.buf[:900-f.Headers]...)
			there, err := batch.Sockaddr(to)
			require.NoError(t, err)
			require.NoError(t, unix.Sendto(stranger.unicast, again, 0, there))
			send(zero, 0)
			least := zero.o.MinPacket()
			require.Equal(t, Heard{Multicast: least, Unicast: least, Multicasts: 1, Unicasts: 1}, heard(),
				"a recorded one of 900 bytes counts again")
		})
	}
}

// TestProbesNeedAddresses: tags cover where a probe is sent.
func TestProbesNeedAddresses(t *testing.T) {
	o := probing(batch.IPv4, 0, probeKey)
	o.Interface = lo(t)
	_, err := OpenProber(*o)
	require.ErrorContains(t, err, "want the addresses of all 3")
}

// TestTaken: a port of the group that another program has mutes a rank, its own port or one that it is to have next.
func TestTaken(t *testing.T) {
	held, err := net.ListenPacket("udp4", "0.0.0.0:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, held.Close()) }()
	port := uint16(held.LocalAddr().(*net.UDPAddr).Port)
	group, own := freshGroup(batch.IPv4)
	open := func(port uint16) *Prober {
		p, err := OpenProber(Options{
			Size: 1, Job: 1, Group: group, Port: port, Subgroups: 2, Interface: lo(t),
			Sources: []netip.Addr{localhost(batch.IPv4)},
		})
		require.NoError(t, err)
		t.Cleanup(p.Close)
		return p
	}
	require.True(t, open(port).Taken(port))
	p := open(own)
	require.False(t, p.Taken(own))
	require.NoError(t, p.Multicast(SmallPacket))
	require.True(t, p.Taken(port))
	var taken *PortTakenError
	require.ErrorAs(t, p.Multicast(SmallPacket), &taken)
	require.Equal(t, port, taken.At.Port())
}

// FuzzProbePath: with a key, a datagram counts if a rank has sealed it, and no other does.
func FuzzProbePath(f *testing.F) {
	o := probing(batch.IPv4, 1, probeKey)
	to := netip.AddrPortFrom(o.Group, o.Port)
	true0 := probeOf(probing(batch.IPv4, 0, probeKey), to)
	f.Add(true0)
	f.Add(true0[:wire.ProbeSize+seal.MaxSize])
	f.Add(true0[:wire.ProbeSize])
	f.Add(probeOf(probing(batch.IPv4, 0, nil), to))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, counts := NewProbePath(o, to).Take(b, len(b), fromAnywhere)
		const sealed = wire.ProbeSize + seal.MaxSize
		if want := len(b) == len(true0) && string(b[:sealed]) == string(true0[:sealed]); counts != want {
			t.Fatalf("counts: %v, want %v: %+v", counts, want, got)
		}
	})
}
