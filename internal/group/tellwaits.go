package group

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/team"
)

// A join may wait as long as MCAST_JOIN_TIMEOUT: whom it waits for, and why, is said meanwhile.

// tellEvery is how often a join looks whom it waits for. What has not changed is said again each time that the wait has
// doubled.
const tellEvery = 5 * time.Second

// tellWaits says every few seconds who is awaited, until stop is called; awaited returns "" for nobody.
func tellWaits(say func(text string), awaited func() string) (stop func()) {
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		t := time.NewTicker(tellEvery)
		defer t.Stop()
		said := ""
		for waited, next := tellEvery, tellEvery; ; waited += tellEvery {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
			}
			text := awaited()
			if text == "" || text == said && waited < next {
				continue
			}
			said, next = text, 2*waited
			say(fmt.Sprintf("waiting for %v: %s", waited, text))
		}
	}()
	return stop
}

// awaited returns what says which ranks are not there yet, and why. Hosts and addresses are those of now: the join changes
// them when a way is chosen.
func (g *Group) awaited() func() string {
	hosts, addrs := slices.Clone(g.agreed.Hosts), slices.Clone(g.agreed.Addrs)
	return func() string { return g.awaitedAt(hosts, addrs) }
}

func (g *Group) awaitedAt(hosts []team.Host, addrs []netip.AddrPort) string {
	a, l := g.agreed, g.lobby
	var parts []string
	failing := l.unreached()
	for _, r := range slices.Sorted(maps.Keys(failing)) {
		at := ""
		if len(a.Ways) == 1 {
			at = fmt.Sprintf(" at %v", addrs[r])
		}
		parts = append(parts, fmt.Sprintf("rank %d on %v cannot be reached%s: %v", r, hosts[r], at, failing[r]))
	}
	neighbours := mesh.Neighbours(a.Rank, a.Size)
	absent := slices.DeleteFunc(l.absent(a, wire.PurposeMesh), func(r int) bool { return !slices.Contains(neighbours, r) })
	if len(absent) > 0 {
		parts = append(parts, fmt.Sprintf("%s: not connected to this rank yet", rankList(absent)))
	}
	if len(parts) == 0 {
		if r, ok := g.mesh.Silent(); ok {
			return fmt.Sprintf("rank %d on %v has not answered", r, hosts[r])
		}
		return "some other ranks have not come; the ranks that wait for them name them"
	}
	return strings.Join(parts, "; ")
}

// telling passes the ranks awaited at a rendezvous to m.Waits until stop is called.
func (m Meeting) telling(awaited func() string) (stop func()) {
	if m.Waits == nil {
		return func() {}
	}
	return tellWaits(func(text string) { m.Waits("rendezvous: " + text) }, awaited)
}

// guestList says who has not come to a rendezvous yet.
type guestList struct{ text atomic.Pointer[string] }

func (l *guestList) note(guests []net.Conn) {
	text := ""
	if slices.Contains(guests[1:], nil) {
		text = absent(guests)
	}
	l.text.Store(&text)
}

func (l *guestList) absent() string { return *l.text.Load() }
