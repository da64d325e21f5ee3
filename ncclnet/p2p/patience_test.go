package p2p

import (
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
	"github.com/torch-mcast/torch-mcast/ncclnet/p2p/caller"
)

// TestAskedForLate: NCCL may stand still between two calls for longer than the timeout.
func TestAskedForLate(t *testing.T) {
	o := Options{Addr: loopback, Timeout: 200 * time.Millisecond, Fabric: "tcp"}
	l, h := listen(t, o)
	ask := connect(h, o)
	if c, err := ask(); c.P != nil || err != nil {
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

// TestGreetsLate: a process may get no core between its connect and its greeting. The listener waits, for it would not
// connect again.
func TestGreetsLate(t *testing.T) {
	o := Options{Addr: loopback, Timeout: 200 * time.Millisecond, Fabric: "tcp"}
	l, _ := listen(t, o)
	c, err := net.Dial("tcp", l.place.addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	systest.Pause(5 * o.Timeout)
	g := greeting{key: l.place.key, id: 1, lanes: 1, offer: tcp}
	if _, err := c.Write(g.bytes()); err != nil {
		t.Fatal(err)
	}
	if _, err := readAnswer(c, false); err != nil {
		t.Fatal("after a late greeting:", err)
	}
}

// TestAborted: after an abort of a communicator, NCCL never asks for its connections again. When the peer has closed
// its end, this end closes as well, long before its patience is over. A caller that asks later gets the reason.
func TestAborted(t *testing.T) {
	for _, fabric := range []string{"tcp", "shm"} {
		for name, taken := range map[string]bool{"the peer had accepted": true, "the peer closes its listener": false} {
			t.Run(fabric+"/"+name, func(t *testing.T) {
				l, h := listen(t, Options{Fabric: fabric})
				ask := connect(h, Options{Fabric: fabric, Timeout: systest.Limit})
				if c, err := ask(); c.P != nil || err != nil {
					t.Fatal("a connection at once", err)
				}
				a := attemptOf(t, h)
				<-a.done
				if taken {
					var recv caller.Comm
					systest.Eventually(t, func() bool {
						c, err := accept(l)()
						if err != nil {
							t.Fatal(err)
						}
						recv = c
						return c.P != nil
					})
					recv.Close()
				}
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				systest.Eventually(t, func() bool {
					attempts.Lock()
					defer attempts.Unlock()
					return a.result.comm == nil
				})
				if _, err := ask(); !errors.Is(err, errGone) {
					t.Fatalf("%v; want %v", err, errGone)
				}
			})
		}
	}
}

// attemptOf returns the one that a handle leads to.
func attemptOf(t *testing.T, h []byte) *attempt {
	t.Helper()
	attempts.Lock()
	defer attempts.Unlock()
	a := attempts.by[binary.LittleEndian.Uint64(h[atState:])]
	if a == nil {
		t.Fatal("there is no attempt")
	}
	return a
}

// TestErrorsNameTheInterface: a port where nobody listens, at an address that this host has, of a handle of another
// host.
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
