// Package attack is somebody on the network, or on a rank's host, who wants a group to take wrong data or to end: he
// hears all that is multicast, knows what every field means, and forges addresses. He does not know MCAST_SECRET.
// It is for testbeds: docs/how-to/testbed.md.
package attack

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// Options say whom to attack, and how.
type Options struct {
	Interface string
	Group     netip.Addr // IPv4
	Port      uint16
	Count     int     // datagrams to send
	Rate      float64 // of them a second; 0: as fast as they go
	Seed      uint64
}

// Report is what was done.
type Report struct {
	Recorded int            `json:"recorded"` // datagrams of ranks that were heard, and kept for a while
	Ranks    int            `json:"ranks"`    // ranks that sent the recorded datagrams
	Sent     int            `json:"sent"`
	By       map[string]int `json:"by"` // sent, by how they were forged
	Seconds  float64        `json:"seconds"`
}

const (
	kept   = 1024 // recorded datagrams; later ones take the place of earlier ones
	listen = 64   // datagrams that are sent between two looks at what there is to record
)

// attacker is under way.
type attacker struct {
	Options
	spy, raw int // sockets
	rand     *rand.Rand
	recorded []datagram
	sources  map[int]netip.Addr // of ranks
	report   Report
	room     []byte
	control  []byte
}

// Run attacks until Count datagrams are sent, or ctx ends, which is no error.
func Run(ctx context.Context, o Options) (Report, error) {
	if !o.Group.Is4() || !o.Group.IsMulticast() {
		return Report{}, config.Mistakef("attack: %v: want a multicast group of IPv4", o.Group)
	}
	if o.Port == 0 || o.Count < 1 || o.Rate < 0 {
		return Report{},
			config.Mistakef("attack: port %d, %d datagrams, %g a second: want 1 or more, 1 or more, and a rate of 0 (none) or "+
				"more", o.Port, o.Count, o.Rate)
	}
	a := &attacker{
		Options: o, spy: -1, raw: -1, rand: rand.New(rand.NewPCG(o.Seed, 1)), sources: map[int]netip.Addr{},
		report: Report{By: map[string]int{}}, room: make([]byte, 64<<10), control: make([]byte, 64),
	}
	defer a.close()
	if err := a.open(); err != nil {
		return Report{}, err
	}
	start := time.Now()
	err := a.run(ctx, start)
	a.report.Ranks, a.report.Seconds = len(a.sources), time.Since(start).Seconds()
	return a.report, err
}

func (a *attacker) run(ctx context.Context, start time.Time) error {
	for a.report.Sent < a.Count && ctx.Err() == nil {
		if err := a.record(); err != nil {
			return err
		}
		if len(a.recorded) == 0 {
			time.Sleep(time.Millisecond) // the job number is in what ranks send
			continue
		}
		for range min(listen, a.Count-a.report.Sent) {
			if err := a.send(); err != nil {
				return err
			}
		}
		if a.Rate > 0 {
			time.Sleep(time.Until(start.Add(time.Duration(float64(a.report.Sent) / a.Rate * float64(time.Second)))))
		}
	}
	return nil
}

// record keeps what ranks have sent by now, and learns their addresses from it.
func (a *attacker) record() error {
	for range kept {
		n, words, _, from, err := unix.Recvmsg(a.spy, a.room, a.control, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("attack: listen: %w", err)
		}
		var h wire.Data
		if isForged(a.control[:words]) || h.Get(a.room[:n]) != nil {
			continue
		}
		root := int(h.Root)
		if at, ok := from.(*unix.SockaddrInet4); ok && a.sources[root] == (netip.Addr{}) {
			a.sources[root] = netip.AddrFrom4(at.Addr)
		}
		d := datagram{append([]byte{}, a.room[:n]...), root}
		if a.report.Recorded++; len(a.recorded) < kept {
			a.recorded = append(a.recorded, d)
		} else {
			a.recorded[a.rand.IntN(kept)] = d
		}
	}
	return nil
}

// send forges one datagram and sends it, from the address of the rank that it names.
func (a *attacker) send() error {
	way := Way(a.rand.IntN(int(waysCount)))
	d := forge(a.rand, way, a.recorded[a.rand.IntN(len(a.recorded))], len(a.sources)+1)
	from, known := a.sources[d.root]
	if !known {
		from = a.sources[a.recorded[0].root]
	}
	err := a.from(from, d.bytes)
	if errors.Is(err, unix.EMSGSIZE) || errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.EAGAIN) {
		return nil // one that is too long, or a queue that is full
	}
	if err != nil {
		return fmt.Errorf("attack: send from %v: %w", from, err)
	}
	a.report.Sent++
	a.report.By[way.String()]++
	return nil
}
