package p2p

import (
	"strings"
	"testing"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// TestAskedForLate: NCCL may stand still between two calls for longer than the timeout.
func TestAskedForLate(t *testing.T) {
	o := Options{Addr: loopback, Timeout: 200 * time.Millisecond, Fabric: "tcp"}
	l, h := listen(t, o)
	ask := connect(h, o)
	if c, err := ask(); c.c != nil || err != nil {
		t.Fatal("a connection at once", err)
	}
	systest.Pause(3 * o.Timeout)
	if _, err := until(t, accept(l)); err != nil {
		t.Fatal(err)
	}
	if _, err := until(t, ask); err != nil {
		t.Fatal(err)
	}
}

// TestErrorsNameTheInterface: a port where nobody listens, at an address that this host has, of a handle of another host.
func TestErrorsNameTheInterface(t *testing.T) {
	o := Options{Addr: loopback, Interface: "lo", Timeout: time.Second, Fabric: "tcp"}
	l, h := listen(t, o)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	p, err := parseHandle(h)
	if err != nil {
		t.Fatal(err)
	}
	p.host, p.held = p.host+1, true
	p.put(h)
	if again, err := parseHandle(h); err != nil || again != p {
		t.Fatalf("%+v, %v; want %+v", again, err, p)
	}
	_, err = until(t, connect(h, o))
	want := " by lo (MCAST_IFACE names another interface), an address that this host has as well as the peer's"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("%v; want %q", err, want)
	}
}
