// Package group is collectives among a fixed group of ranks, one process each. It is what
// pkg/collnet, the C library (ncclnet) and cmd/mcast share; the first of them is for other modules.
//
//	e, err := group.Open(group.Options{Rank: r, Size: p, Settings: s})
//	blobs, err := bootstrap.Rendezvous(ctx, addr, r, p, e.Blob()) // or any other exchange
//	g, err := e.Join(ctx, blobs)
//	err = g.Allgather(send, recv)
//
// All ranks post the same operations in the same order; Allgather, Broadcast
// and Barrier form one order and Reduce-Scatter another, and the two never
// wait for each other (pkg/overlap). A Group may be used by many goroutines.
//
// The words are in docs/reference/glossary.md.
package group

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/torch-mcast/torch-mcast/internal/bootstrap"
	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/monitor"
	"github.com/torch-mcast/torch-mcast/internal/owntime"
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/transport/identity"
	"github.com/torch-mcast/torch-mcast/internal/transport/netdev"
	"github.com/torch-mcast/torch-mcast/internal/version"
)

// MaxRanks is the largest number of ranks in a group.
const MaxRanks = collective.MaxRanks

// MaxBlob is the largest Blob, in bytes; MCAST_BLOB_MAX of mcast.h. A host with the longest name, 8 addresses
// over IPv6 and no setting at its default has 1260 to tell.
const MaxBlob = 2048

// Options name this rank in its group, and say how to join it.
type Options struct {
	Rank, Size int
	// Settings are the MCAST_* variables, see internal/config. All ranks need the same values, except
	// where docs/reference/settings.md allows others. MCAST_SIMD holds for the whole process: the last
	// group's value counts.
	Settings config.Settings
	// Logger takes what the group has to say; nil: standard error, from MCAST_LOG on.
	Logger *slog.Logger
	// Network is what other hosts are reached through; nil: the kernel. By pages and traces a group is seen with the
	// kernel alone.
	Network hostnet.Network
}

// Endpoint is a rank that its peers can reach, but that has not joined them.
type Endpoint struct {
	opts     Options
	peers    *bootstrap.Listener
	blob     []byte
	observer monitor.Observer
	used     atomic.Bool // by Join
}

// Open makes a rank reachable. Exchange the Blobs of all ranks, then Join.
func Open(o Options) (*Endpoint, error) {
	if o.Size < 1 || o.Size > MaxRanks {
		return nil, argument("group of %d ranks; allowed are 1 to %d", o.Size, MaxRanks)
	}
	if o.Rank < 0 || o.Rank >= o.Size {
		return nil, argument("rank %d is not in a group of %d; allowed are 0 to %d", o.Rank, o.Size, o.Size-1)
	}
	var seen monitor.Observer = monitor.Unobserved{}
	if o.Network == nil {
		seen = monitor.ThisProcess
		if err := roomForThreads(o.Rank, o.logger()); err != nil {
			return nil, err
		}
		o.Network = hostnet.Kernel{}
	}
	family := netdev.Version(o.Settings.Version())
	_, addrs, err := o.Network.Uplink(o.Settings.First(), family)
	if err != nil {
		return nil, err
	}
	rails, err := railsOf(&o, family)
	if err != nil {
		return nil, err
	}
	id, err := identity.New(o.Settings.Secret)
	if err != nil {
		return nil, err
	}
	name, err := id.Name()
	if err != nil {
		return nil, err
	}
	l, err := bootstrap.NewListener(o.Network, o.Settings.Interface != "", o.logger(), id)
	if err != nil {
		return nil, fmt.Errorf("rank %d: %w", o.Rank, err)
	}
	mine := team.Blob{
		Version: protocolVersion, Commit: team.ClipCommit(version.Commit()), Rank: o.Rank, Size: o.Size,
		Host: o.Network.Host(), User: o.Network.User(), Name: o.Network.Name(),
		Port: l.Port(), Secret: name, RcvBuf: receiveLimit(o.Settings),
		Key: strconv.FormatUint(l.Key, 16), Job: strconv.FormatUint(bootstrap.Random64(), 16),
		Switches: len(o.Settings.Switches()), Settings: o.Settings.Agreed(), Topology: o.Settings.Topology, Rails: rails,
	}
	mine.Devices = o.mayHaveDevices()
	mine.Offer(addrs)
	if mine.Asked = o.Settings.Interface != ""; !mine.Asked {
		mine.Candidates = o.Network.Candidates(family)
	}
	b, err := json.Marshal(mine)
	if err == nil && len(b) > MaxBlob {
		err = argument("rank %d has %d bytes to tell the others, of its host's name, its addresses and MCAST_TOPOLOGY; "+
			"allowed are %d", o.Rank, len(b), MaxBlob)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return &Endpoint{opts: o, peers: l, blob: b, observer: seen}, nil
}

// Blob returns what the other ranks need to know about this one: JSON, MaxBlob
// bytes at most.
func (e *Endpoint) Blob() []byte { return bytes.Clone(e.blob) }

// Rendezvous exchanges the Blobs of all ranks, see Meeting.Rendezvous; rank 0 listens at addr.
func (e *Endpoint) Rendezvous(ctx context.Context, addr string) ([][]byte, error) {
	return e.meeting(0).RendezvousOver(ctx, e.opts.Network, addr, e.opts.Rank, e.opts.Size, e.blob)
}

func (e *Endpoint) meeting(key uint64) bootstrap.Meeting {
	return bootstrap.Meeting{Key: key, Identity: e.peers.Identity, Waits: func(text string) { e.peers.Log.Warn(text) }}
}

// Close gives up an endpoint that has not joined. Join does so by itself.
func (e *Endpoint) Close() { e.peers.Close() }

// receiveLimit returns the largest receive buffer that an unprivileged socket gets here.
func receiveLimit(s config.Settings) int {
	limit := 212992 // the kernel's default
	if text, err := os.ReadFile("/proc/sys/net/core/rmem_max"); err == nil {
		if n, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			limit = n
		}
	}
	if s.ReceiveBuffer > 0 {
		limit = min(limit, s.ReceiveBuffer)
	}
	return limit
}

// Meet is Rendezvous and Join, both within MCAST_JOIN_TIMEOUT. The endpoint is used up either way.
// key is Meeting.Key.
func (e *Endpoint) Meet(ctx context.Context, addr string, key uint64) (*Group, error) {
	ctx, cancel := e.withinJoinTimeout(ctx)
	defer cancel()
	blobs, err := e.meeting(key).RendezvousOver(ctx, e.opts.Network, addr, e.opts.Rank, e.opts.Size, e.blob)
	if err != nil {
		e.Close()
		return nil, err
	}
	return e.Join(ctx, blobs)
}

func (e *Endpoint) withinJoinTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := e.opts.Settings.JoinTimeout
	return owntime.WithTimeout(ctx, limit, &owntime.TimeoutError{Setting: "MCAST_JOIN_TIMEOUT", After: limit})
}

// Join connects all ranks. blobs holds every rank's Blob, in rank order. It
// fails on all ranks, each with the reason, if it fails on one; and when ctx
// ends or MCAST_JOIN_TIMEOUT is over. The endpoint is used up either way.
func (e *Endpoint) Join(ctx context.Context, blobs [][]byte) (*Group, error) {
	if e.used.Swap(true) { // the counters of its seals would begin again, under the same keys
		return nil, argument("this endpoint was used up by a Join: open another one")
	}
	ctx, cancel := e.withinJoinTimeout(ctx)
	defer cancel()
	a, err := team.New(e.opts.self(), blobs)
	if err != nil {
		e.peers.Close()
		return nil, err
	}
	if a.Keys[a.Rank] != e.peers.Key { // keys of datagrams are derived from it, and must be new
		e.peers.Close()
		return nil, argument("blob %d is of another endpoint than this rank's: want the Blob of this one (does the store "+
			"keep blobs of an earlier job?)", a.Rank)
	}
	g, err := join(ctx, e, a)
	if err != nil {
		e.peers.Close()
		return nil, fmt.Errorf("rank %d of %d cannot join: %w", e.opts.Rank, e.opts.Size, err)
	}
	return g, nil
}

// mayHaveDevices reports whether auto may take an RDMA device on this rank's host.
func (o *Options) mayHaveDevices() bool {
	n, has := o.Network.(hostnet.RDMA)
	return has && o.Settings.Fabric == "auto" && n.Hardware()
}

// railsOf returns the addresses of each interface that MCAST_IFACE names behind the first.
func railsOf(o *Options, v netdev.Version) (rails [][]netip.Addr, err error) {
	names := o.Settings.Interfaces()
	for _, name := range names[min(1, len(names)):] {
		_, addrs, err := o.Network.Uplink(name, v)
		if err != nil {
			return nil, err
		}
		rails = append(rails, addrs)
	}
	return rails, nil
}
