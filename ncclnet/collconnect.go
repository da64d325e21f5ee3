package main

/*
#include "plugin.h"
*/
import "C"

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"unsafe"

	"github.com/torch-mcast/torch-mcast/internal/bootstrap"
	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/group"
	"github.com/torch-mcast/torch-mcast/internal/owntime"
	"github.com/torch-mcast/torch-mcast/internal/transport/netdev"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

// collListener is where other ranks of a communicator that is about to
// connect reach this one. Only rank 0's is used.
type collListener struct {
	net.Listener
	settings       config.Settings
	device         netdev.Device
	severalDevices bool // CollNet has several devices: one for each GPU of a node
	once           sync.Once
	err            error
}

// Close may be called twice: a rendezvous closes its listener when it is done.
func (l *collListener) Close() error {
	l.once.Do(func() { l.err = l.Listener.Close() })
	return l.err
}

var collListeners = handles[*collListener]{what: "CollNet listener"}

// collHandle is the content of a handle: the data that a rank's listen gives the other ranks.
type collHandle struct {
	at   netip.AddrPort
	key  uint64 // of the rendezvous there: ports are used again
	guid uint64 // of the device
}

// In NCCL's bytes: 8 of magic with its version, address (IPv4 as ::ffff:a.b.c.d), port, key, GUID,
// checksum of these.
const (
	collMagic    = "mcastCN3"
	collChecksum = 42 // where it is
)

func (c collHandle) put(h []byte) {
	clear(h)
	copy(h, collMagic)
	a := c.at.Addr().As16()
	copy(h[8:], a[:])
	binary.BigEndian.PutUint16(h[24:], c.at.Port())
	binary.BigEndian.PutUint64(h[26:], c.key)
	binary.BigEndian.PutUint64(h[34:], c.guid)
	binary.BigEndian.PutUint32(h[collChecksum:], crc32.ChecksumIEEE(h[:collChecksum]))
}

// read reports whether that is one of ours.
func (c *collHandle) read(h []byte) bool {
	if string(h[:8]) != collMagic || binary.BigEndian.Uint32(h[collChecksum:]) != crc32.ChecksumIEEE(h[:collChecksum]) {
		return false
	}
	c.at = netip.AddrPortFrom(netip.AddrFrom16([16]byte(h[8:24])).Unmap(), binary.BigEndian.Uint16(h[24:]))
	c.key, c.guid = binary.BigEndian.Uint64(h[26:]), binary.BigEndian.Uint64(h[34:])
	return true
}

// meeting is what the handles of all ranks say.
type meeting struct {
	first   collHandle // rank 0's
	oneHost bool       // all ranks have one and the same device, and so one host
	members uint64     // stands for the devices of all ranks, in order, and for this rank
}

// readCollHandles reads the handles of all ranks. NCCL gives every rank those of all (collNetHandle_t
// of src/transport/coll_net.cc, v2.20.5 to v2.30.7).
func readCollHandles(all []unsafe.Pointer, rank int) (m meeting, err error) {
	m.oneHost = true
	members := fnv.New64a()
	_, _ = members.Write(binary.BigEndian.AppendUint64(nil, uint64(rank))) // never fails, says hash
	for r, p := range all {
		var h collHandle
		ok := p != nil && h.read(unsafe.Slice((*byte)(p), C.NCCL_HANDLE_BYTES))
		if r == 0 {
			m.first = h
			if !ok {
				return m, argument("the handle of rank 0 is NULL, garbled, or not one of this plugin's CollNet")
			}
		}
		m.oneHost = m.oneHost && ok && h.guid == m.first.guid
		_, _ = members.Write(binary.BigEndian.AppendUint64(nil, h.guid))
	}
	m.members = members.Sum64()
	return m, nil
}

//export goCollListen
func goCollListen(dev C.int, handle unsafe.Pointer, out *C.int64_t) C.nccl_result {
	return verdict("CollNet listen", func() error {
		s, d, err := current(int(dev))
		if err != nil {
			return err
		}
		var lc net.ListenConfig
		ln, err := lc.Listen(context.Background(), "tcp", netip.AddrPortFrom(d.Addr, 0).String())
		if err != nil {
			return fmt.Errorf("listen on %s: %w", d.Name, sys.Drawn(err))
		}
		at, err := netip.ParseAddrPort(ln.Addr().String())
		if err != nil {
			return errors.Join(err, ln.Close())
		}
		var key [8]byte
		_, _ = rand.Read(key[:]) // never fails, says crypto/rand
		h := collHandle{at: at, key: binary.BigEndian.Uint64(key[:]), guid: d.GUID}
		h.put(unsafe.Slice((*byte)(handle), C.NCCL_HANDLE_BYTES))
		*out = C.int64_t(collListeners.add(&collListener{
			Listener: ln, settings: s, device: d, severalDevices: collDevices() > 1,
		}))
		return nil
	})
}

// goCollCloseListen closes a listener, unless a connect that failed has done so.
//
//export goCollCloseListen
func goCollCloseListen(handle C.int64_t) C.nccl_result {
	return verdict("CollNet closeListen", func() error { return closeCollListener(handle) })
}

func closeCollListener(handle C.int64_t) error {
	l, err := collListeners.take(int64(handle))
	if errors.Is(err, errClosed) {
		return nil
	}
	return l.Close()
}

// goCollConnect closes the listener if it fails: NCCL does not, then.
//
//export goCollConnect
func goCollConnect(
	handles *unsafe.Pointer, ranks, rank C.int, listener C.int64_t, made *C.struct_coll_made,
) C.nccl_result {
	return verdict("CollNet connect", func() error {
		err := collConnect(handles, ranks, rank, listener, made)
		if err != nil {
			err = errors.Join(err, closeCollListener(listener))
		}
		return err
	})
}

func collConnect(
	handles *unsafe.Pointer, ranks, rank C.int, listener C.int64_t, made *C.struct_coll_made,
) error {
	l, err := collListeners.get(int64(listener))
	if err != nil {
		return argument("%v", err)
	}
	if ranks < 1 || ranks > group.MaxRanks || rank < 0 || rank >= ranks {
		return argument("rank %d of %d is not allowed: want 1 to %d ranks, numbered from 0", int(rank), int(ranks),
			group.MaxRanks)
	}
	met, err := readCollHandles(unsafe.Slice(handles, int(ranks)), int(rank))
	if err != nil {
		return err
	}
	l.settings.Interface = groupInterface(l.settings.Interface, l.device.Name, met.oneHost)
	g, a, err := l.connect(met, int(rank), int(ranks))
	if err != nil {
		return err
	}
	*made = C.struct_coll_made{
		group: C.int64_t(collGroups.add(&collGroup{Group: g})), drives: C.bool(callersDrive(l.settings)),
		key: C.uint64_t(met.first.key), members: C.uint64_t(met.members),
		agreed: C.struct_coll_agreed{
			switched: C.bool(a.switched), paired: C.bool(a.paired), multicast: C.bool(a.multicast), alike: C.bool(a.alike),
			direct: C.bool(l.settings.GPUMemory != "host"),
		},
	}
	return nil
}

// groupInterface returns the interface for a group: the one of the device that NCCL chose, even where
// the default route is over another one. Empty for ranks of one host without MCAST_IFACE: they use
// loopback or shared memory.
func groupInterface(asked, device string, oneHost bool) string {
	if asked == "" && oneHost {
		return ""
	}
	return device
}

// failedBlob stands before the reason that a rank sends instead of its blob if it cannot take
// part. So all know at once, and none waits.
const failedBlob = "failed: "

// connect makes the group. All ranks come to one verdict: NCCL never ends if one rank's
// connect succeeds and another's fails. They come within moments of each other, for NCCL has
// just exchanged their handles. So a rank that is late by MCAST_TIMEOUT, counting only time in
// which this process runs, is lost.
func (l *collListener) connect(met meeting, rank, size int) (*group.Group, agreement, error) {
	ctx, cancel := owntime.WithTimeout(context.Background(), l.settings.Timeout,
		fmt.Errorf("not all of %d ranks came within MCAST_TIMEOUT=%v", size, l.settings.Timeout))
	defer cancel()
	settings := l.settings
	settings.Nodes = "off" // NCCL has done a host's part itself, and calls for windows
	endpoint, unfit := group.Open(group.Options{
		Rank: rank, Size: size, Settings: settings, Logger: slog.New(ncclHandler{}),
	})
	var blob string
	if unfit == nil {
		traceOnSignal(&settings)
		blob = l.tuning() + "\n" + offer{l.settings.Switch != "", bool(C.nvswitch_seen())}.String() + "\n" +
			string(endpoint.Blob())
	} else {
		blob = failedBlob + unfit.Error()
		blob = blob[:min(len(blob), 500)]
	}
	var agreed agreement
	blobs, err := l.exchange(ctx, met.first, rank, size, []byte(blob))
	if err == nil {
		agreed, err = l.open(blobs)
	}
	if unfit != nil {
		return nil, agreed, errors.Join(unfit, err)
	}
	if err != nil {
		endpoint.Close()
		return nil, agreed, &remoteError{err}
	}
	g, err := endpoint.Join(ctx, blobs)
	if err != nil {
		return nil, agreed, err
	}
	agreed.multicast, err = multicastReaches(g, l.settings.Multicast, l.severalDevices)
	if err == nil && agreed.switched {
		agreed.switched, err = switchAnswers(g, l.severalDevices)
	}
	if err == nil {
		agreed.paired, err = pair(g, met.members)
	}
	if err != nil {
		return nil, agreed, errors.Join(err, g.Close())
	}
	return g, agreed, nil
}

func (l *collListener) exchange(ctx context.Context, first collHandle, rank, size int, blob []byte) ([][]byte, error) {
	m, err := bootstrap.NewMeeting(first.key, l.settings.Secret)
	if err != nil {
		return nil, err
	}
	if rank == 0 {
		return m.RendezvousOn(ctx, l, size, blob)
	}
	at := netdev.Near(first.at, l.device.Name)
	return m.Rendezvous(ctx, at.String(), rank, size, blob)
}

// tuning spells the settings of the tuner: ranks that choose differently would wait for each other
// for ever.
func (l *collListener) tuning() string {
	return fmt.Sprintf("MCAST_TUNER_ALLGATHER=%d MCAST_TUNER_REDUCE_SCATTER=%d MCAST_GPU_MEMORY=%s",
		l.settings.TunerAllgather, l.settings.TunerReduceScatter, l.settings.GPUMemory)
}

// open leaves the endpoints' own blobs and returns what all ranks conclude from the rest, or which
// ranks cannot take part and why.
func (l *collListener) open(blobs [][]byte) (agreement, error) {
	var errs []error
	offers := make([]offer, len(blobs))
	for r, b := range blobs {
		if reason, ok := strings.CutPrefix(string(b), failedBlob); ok {
			errs = append(errs, fmt.Errorf("rank %d cannot take part: %s", r, reason))
			continue
		}
		tuning, rest, _ := bytes.Cut(b, []byte("\n"))
		if string(tuning) != l.tuning() {
			errs = append(errs, fmt.Errorf("rank %d has %s, this one %s: all ranks need the same", r, tuning, l.tuning()))
			continue
		}
		line, blob, _ := bytes.Cut(rest, []byte("\n"))
		var err error
		if offers[r], err = readOffer(string(line)); err != nil {
			errs = append(errs, fmt.Errorf("rank %d: %w", r, err))
		}
		blobs[r] = blob
	}
	return agree(offers), errors.Join(errs...)
}
