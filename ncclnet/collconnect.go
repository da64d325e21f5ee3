package main

/*
#include "plugin.h"
*/
import "C"

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"unsafe"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/pkg/collnet"
)

// collListener is where other ranks of a communicator that is about to
// connect reach this one. Only rank 0's is used.
type collListener struct {
	net.Listener
	settings config.Settings
	once     sync.Once
	err      error
}

// Close may come twice: a rendezvous closes what it has used.
func (l *collListener) Close() error {
	l.once.Do(func() { l.err = l.Listener.Close() })
	return l.err
}

var collListeners = handles[*collListener]{what: "CollNet listener"}

// A handle: 8 bytes of magic with its version, IPv4 address, port, checksum of these.
const collMagic = "mcastCN1"

func putCollHandle(h []byte, at netip.AddrPort) {
	clear(h)
	copy(h, collMagic)
	a := at.Addr().As4()
	copy(h[8:], a[:])
	binary.BigEndian.PutUint16(h[12:], at.Port())
	binary.BigEndian.PutUint32(h[14:], crc32.ChecksumIEEE(h[:14]))
}

func collAddress(h []byte) (netip.AddrPort, error) {
	if string(h[:8]) != collMagic || binary.BigEndian.Uint32(h[14:]) != crc32.ChecksumIEEE(h[:14]) {
		return netip.AddrPort{}, argument("the handle of rank 0 is garbled, or not one of this plugin's CollNet")
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(h[8:12])), binary.BigEndian.Uint16(h[12:])), nil
}

//export goCollListen
func goCollListen(dev C.int, handle unsafe.Pointer, out *C.int64_t) C.nccl_result {
	return verdict("CollNet listen", func() error {
		s, d, err := current(int(dev))
		if err != nil {
			return err
		}
		var lc net.ListenConfig
		ln, err := lc.Listen(context.Background(), "tcp4", netip.AddrPortFrom(d.Addr, 0).String())
		if err != nil {
			return fmt.Errorf("listen on %s: %w", d.Name, err)
		}
		at, err := netip.ParseAddrPort(ln.Addr().String())
		if err != nil {
			return errors.Join(err, ln.Close())
		}
		putCollHandle(unsafe.Slice((*byte)(handle), C.NCCL_HANDLE_BYTES), at)
		*out = C.int64_t(collListeners.add(&collListener{Listener: ln, settings: s}))
		return nil
	})
}

//export goCollCloseListen
func goCollCloseListen(handle C.int64_t) C.nccl_result {
	return verdict("CollNet closeListen", func() error {
		l, err := collListeners.take(int64(handle))
		if err != nil {
			return argument("%v", err)
		}
		return l.Close()
	})
}

//export goCollConnect
func goCollConnect(handles *unsafe.Pointer, ranks, rank C.int, listener C.int64_t, out *C.int64_t, drives *C.bool) C.nccl_result {
	return verdict("CollNet connect", func() error {
		l, err := collListeners.get(int64(listener))
		if err != nil {
			return argument("%v", err)
		}
		if ranks < 1 || ranks > collnet.MaxRanks || rank < 0 || rank >= ranks {
			return argument("rank %d of %d is not allowed: want 1 to %d ranks, numbered from 0", int(rank), int(ranks), collnet.MaxRanks)
		}
		first := *handles
		if first == nil {
			return argument("the handle of rank 0 is NULL")
		}
		at, err := collAddress(unsafe.Slice((*byte)(first), C.NCCL_HANDLE_BYTES))
		if err != nil {
			return err
		}
		g, err := l.connect(at, int(rank), int(ranks))
		if err != nil {
			return err
		}
		*out, *drives = C.int64_t(collGroups.add(&collGroup{Group: g})), C.bool(callersDrive(l.settings))
		return nil
	})
}

// failedBlob begins what a rank sends instead of its blob, before the reason, if it
// cannot take part: then all know at once, and none waits.
const failedBlob = "failed: "

// connect makes the group. All ranks come to one verdict: NCCL never ends if one rank's
// connect succeeds and another's fails. They come within moments of each other, for NCCL has
// just exchanged their handles: so a rank that is late is one that is lost.
func (l *collListener) connect(at netip.AddrPort, rank, size int) (*collnet.Group, error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), l.settings.Timeout,
		fmt.Errorf("not all of %d ranks came within MCAST_TIMEOUT=%v", size, l.settings.Timeout))
	defer cancel()
	endpoint, unfit := collnet.Open(collnet.Options{
		Rank: rank, Size: size, Settings: l.settings, Logger: slog.New(ncclHandler{}),
	})
	var blob string
	if unfit == nil {
		blob = l.tuning() + "\n" + string(endpoint.Blob())
	} else {
		blob = failedBlob + unfit.Error()
		blob = blob[:min(len(blob), 500)]
	}
	blobs, err := l.exchange(ctx, at, rank, size, []byte(blob))
	if err == nil {
		err = l.open(blobs)
	}
	if unfit != nil {
		return nil, errors.Join(unfit, err)
	}
	if err != nil {
		endpoint.Close()
		return nil, errors.Join(errRemote, err)
	}
	g, err := endpoint.Join(ctx, blobs)
	if err != nil {
		return nil, err
	}
	// Whoever passes the barrier knows that all have joined.
	if err := g.Barrier(); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

func (l *collListener) exchange(ctx context.Context, at netip.AddrPort, rank, size int, blob []byte) ([][]byte, error) {
	if rank == 0 {
		return collnet.RendezvousOn(ctx, l, size, blob)
	}
	return collnet.Rendezvous(ctx, at.String(), rank, size, blob)
}

// tuning spells the settings of the tuner: ranks that choose differently would wait for each other for ever.
func (l *collListener) tuning() string {
	return fmt.Sprintf("MCAST_TUNER_ALLGATHER=%d MCAST_TUNER_REDUCE_SCATTER=%d", l.settings.TunerAllgather, l.settings.TunerReduceScatter)
}

// open leaves the endpoints' own blobs, or returns which ranks cannot take part and why.
func (l *collListener) open(blobs [][]byte) error {
	var errs []error
	for r, b := range blobs {
		if reason, ok := strings.CutPrefix(string(b), failedBlob); ok {
			errs = append(errs, fmt.Errorf("rank %d cannot take part: %s", r, reason))
			continue
		}
		tuning, blob, _ := bytes.Cut(b, []byte("\n"))
		if string(tuning) != l.tuning() {
			errs = append(errs, fmt.Errorf("rank %d has %s, this one %s: all ranks need the same", r, tuning, l.tuning()))
		}
		blobs[r] = blob
	}
	return errors.Join(errs...)
}
