package group

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

func ip(args string) error {
	out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", args, err, out)
	}
	return nil
}

// TestOutage takes the network from a group in the middle of operations, for a moment. None fails.
func TestOutage(t *testing.T) {
	waits(t)
	if !systest.Apart(t) {
		return
	}
	const ranks, shard = 2, 1 << 20
	g := assemble(t, ranks, func(s *config.Settings) { s.Fabric = "udp" })
	want := make([]byte, ranks*shard)
	fill(want, 1)
	operate := func(t *testing.T) {
		t.Helper()
		each(t, ranks, func(r int) error {
			got := make([]byte, len(want))
			err := g[r].Allgather(want[r*shard:(r+1)*shard], got)
			if err == nil && !bytes.Equal(want, got) {
				err = errors.New("wrong bytes")
			}
			return err
		})
	}
	for _, c := range []struct {
		name, take, give string
		count            func(s fabric.Stats) uint64
	}{
		{"link down", "link set lo down", "link set lo up", func(s fabric.Stats) uint64 { return s.Unreachable }},
		{"address gone", "addr del 127.0.0.1/8 dev lo", "addr add 127.0.0.1/8 dev lo",
			func(s fabric.Stats) uint64 { return s.Unreachable }},
		{"smaller MTU", "link set lo mtu 1400", "link set lo mtu 65536", func(s fabric.Stats) uint64 { return s.TooLarge }},
	} {
		t.Run(c.name, func(t *testing.T) {
			count := func() (n uint64) {
				for _, g := range g {
					_, s := g.ops.Column().Gather.Stats()
					n += c.count(s)
				}
				return n
			}
			for before := count(); count() == before; { // until some rank was sending when it began
				over := make(chan error, 1)
				go func() {
					systest.Pause(20 * time.Millisecond)
					err := ip(c.take)
					systest.Pause(200 * time.Millisecond)
					over <- errors.Join(err, ip(c.give))
				}()
				for len(over) == 0 {
					operate(t)
				}
				require.NoError(t, <-over)
				operate(t)
			}
		})
	}
	each(t, ranks, func(r int) error { return g[r].Close() })
}

// TestForgedSource has a host that knows a job send what rank 1 would, before rank 1 does.
func TestForgedSource(t *testing.T) {
	g := assemble(t, 2, func(s *config.Settings) { s.Fabric = "udp" })
	group, port := g[0].plan.MulticastGroup()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Close(fd)) }()
	require.NoError(t, unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF,
		&unix.IPMreqn{Address: [4]byte{127, 0, 0, 9}, Ifindex: 1})) // lo
	const shard = 64
	h := wire.Data{Collective: wire.Allgather, Root: 1, Seq: 0, Bytes: shard, Job: g[0].plan.Job}
	forged := make([]byte, wire.DataSize+shard)
	h.Put(forged)
	require.NoError(t, unix.Sendto(fd, forged, 0, &unix.SockaddrInet4{Port: int(port), Addr: group.As4()}))
	each(t, 2, func(r int) error {
		got := make([]byte, 2*shard)
		err := g[r].Allgather(bytes.Repeat([]byte{byte(r + 1)}, shard), got)
		if err == nil && !bytes.Equal(got[shard:], bytes.Repeat([]byte{2}, shard)) {
			err = errors.New("forged bytes")
		}
		return err
	})
	each(t, 2, func(r int) error { return g[r].Close() })
}
