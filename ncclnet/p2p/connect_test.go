package p2p

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/transport/identity"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
	"github.com/torch-mcast/torch-mcast/ncclnet/p2p/caller"
)

func listen(t *testing.T, o Options) (*Listener, []byte) {
	t.Helper()
	if !o.Addr.IsValid() {
		o.Addr = loopback
	}
	l, err := Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	h := make([]byte, HandleSize)
	l.Handle(h)
	return l, h
}

// until calls f until it returns a comm or an error.
func until(t *testing.T, f func() (caller.Comm, error)) (caller.Comm, error) {
	t.Helper()
	for deadline := systest.Deadline(); time.Now().Before(deadline); runtime.Gosched() {
		if c, err := f(); c.P != nil || err != nil {
			if c.P != nil {
				t.Cleanup(c.Close)
			}
			return c, err
		}
	}
	t.Fatal("no connection and no error")
	return caller.Comm{}, nil
}

func accept(l *Listener) func() (caller.Comm, error) {
	return func() (caller.Comm, error) {
		c, err := l.Accept()
		return caller.Comm{P: c}, err
	}
}

func connect(h []byte, o Options) func() (caller.Comm, error) {
	return func() (caller.Comm, error) {
		c, err := Connect(h, o)
		return caller.Comm{P: c}, err
	}
}

// works moves one message.
func works(t *testing.T, send, recv caller.Comm) {
	t.Helper()
	const n = 100000
	from, to := memory(t, n), memory(t, n)
	paint(from, 7)
	r := must(t)(recv.Irecv(to))
	finish(t, must(t)(send.Isend(from)), r)
	checkPaint(t, to, 7)
}

func TestAgreement(t *testing.T) {
	for _, c := range []struct {
		out, in Options
		lanes   int
		fabric  fabrics // 0: none
	}{
		{Options{}, Options{}, 1, shm},
		{Options{Fabric: "tcp", Lanes: 3}, Options{Lanes: 5}, 3, tcp},
		{Options{Lanes: 7}, Options{Fabric: "tcp", Lanes: 2}, 2, tcp},
		{Options{Fabric: "tcp", Lanes: 16, Cut: 1}, Options{Fabric: "tcp", Lanes: 16, Cut: 1 << 20}, 16, tcp},
		{Options{Fabric: "shm"}, Options{}, 1, shm},
		{Options{}, Options{Fabric: "shm"}, 1, shm},
		{Options{Fabric: "shm"}, Options{Fabric: "tcp"}, 0, 0},
		{Options{Fabric: "tcp"}, Options{Fabric: "shm"}, 0, 0},
	} {
		t.Run(fmt.Sprintf("%s,%d to %s,%d", c.out.Fabric, c.out.Lanes, c.in.Fabric, c.in.Lanes), func(t *testing.T) {
			l, h := listen(t, c.in)
			send, err := until(t, connect(h, c.out))
			if c.fabric == 0 {
				if err == nil || !strings.Contains(err.Error(), "allows") || !strings.Contains(err.Error(), l.place.addr.String()) {
					t.Fatal(err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			recv, err := until(t, accept(l))
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range []caller.Comm{send, recv} {
				if lanes, ring, _ := x.Shape(); lanes != c.lanes || ring != (c.fabric == shm) {
					t.Fatalf("%d lanes, a ring: %v", lanes, ring)
				}
			}
			works(t, send, recv)
		})
	}
}

// Ends that prove a secret move messages as others do; who has the handle and does not know it gets nothing.
func TestSecret(t *testing.T) {
	ours, err := identity.New("correct-horse-battery-staple")
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := identity.New("a-secret-of-somebody-else")
	if err != nil {
		t.Fatal(err)
	}
	for _, fabric := range []string{"tcp", "shm"} {
		o := Options{Addr: loopback, Fabric: fabric, Lanes: 3, Identity: ours}
		send, recv := pair(t, o, o)
		works(t, send, recv)
		l, h := listen(t, o)
		for _, id := range []*identity.Identity{nil, theirs} {
			o.Identity, o.Timeout = id, 5*time.Second
			if c, err := until(t, connect(h, o)); err == nil {
				t.Fatalf("%v connected", c)
			}
		}
		o.Identity = ours
		if _, err := until(t, connect(h, o)); err != nil {
			t.Fatal(err)
		}
		if _, err := until(t, accept(l)); err != nil {
			t.Fatal(err)
		}
	}
}

// A listener on another host chooses tcp, even where both ends allow shared memory.
func TestOtherHost(t *testing.T) {
	l, h := listen(t, Options{})
	elsewhere := l.place
	elsewhere.host++
	elsewhere.put(h)
	send, err := until(t, connect(h, Options{}))
	if err != nil {
		t.Fatal(err)
	}
	if _, ring, _ := send.Shape(); ring {
		t.Fatal("shared memory with another host")
	}
	recv, err := until(t, accept(l))
	if err != nil {
		t.Fatal(err)
	}
	works(t, send, recv)
	elsewhere.put(h)
	if _, err := until(t, connect(h, Options{Fabric: "shm"})); err == nil || !strings.Contains(err.Error(), "one host") {
		t.Fatal(err)
	}
}

func TestHandle(t *testing.T) {
	l, h := listen(t, Options{Fabric: "tcp"})
	for i := range atChecksum + 4 {
		for _, flip := range []byte{1, 0x80} {
			bad := append([]byte(nil), h...)
			bad[i] ^= flip
			if c, err := Connect(bad, Options{}); c != nil || err == nil {
				t.Fatalf("byte %d garbled: %v, %v", i, c, err)
			}
		}
	}
	for i := range 8 {
		bad := append([]byte(nil), h...)
		bad[atState+i] ^= 1
		if c, err := Connect(bad, Options{}); c != nil || err == nil {
			t.Fatalf("byte %d of the state garbled: %v, %v", i, c, err)
		}
	}
	for _, short := range [][]byte{nil, h[:HandleSize-1]} {
		if _, err := Connect(short, Options{}); err == nil {
			t.Fatal("a short handle is taken")
		}
	}
	// A copy goes on where the original was; and a handle serves again.
	for range 2 {
		send, err := until(t, func() (caller.Comm, error) {
			h = append([]byte(nil), h...)
			return connect(h, Options{})()
		})
		if err != nil {
			t.Fatal(err)
		}
		recv, err := until(t, accept(l))
		if err != nil {
			t.Fatal(err)
		}
		works(t, send, recv)
	}
}

func TestHandleRoundTrip(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:1", "[::1]:65535", "[fe80::1%eth0]:7"} {
		p := address{addr: netip.MustParseAddrPort(addr), key: 1, host: 2, lanes: 3, fabrics: shm}
		h := make([]byte, HandleSize)
		p.put(h)
		if got, err := parseHandle(h); err != nil || got != p {
			t.Fatalf("%+v, %v", got, err)
		}
	}
}

func TestStrangers(t *testing.T) {
	for _, fabric := range []string{"tcp", "shm"} {
		t.Run(fabric, func(t *testing.T) {
			l, h := listen(t, Options{Fabric: fabric})
			addrs := [][2]string{{"tcp", l.place.addr.String()}}
			if fabric == "shm" {
				addrs = append(addrs, [2]string{"unix", l.place.socketName()})
			}
			wrong := greeting{key: l.place.key + 1, id: 1, lanes: 1, offer: tcp | shm}
			silly := greeting{key: l.place.key, id: 2, lanes: 0, offer: tcp | shm}
			lost := greeting{key: l.place.key, id: 3, lane: 2, lanes: 4, offer: tcp | shm} // without a lane 0
			for _, a := range addrs {
				for _, say := range [][]byte{nil, {0}, make([]byte, 1000), wrong.bytes(), silly.bytes(), lost.bytes(), lost.bytes(),
					lost.bytes()[:20]} {
					c, err := net.Dial(a[0], a[1])
					if err != nil {
						t.Fatal(err)
					}
					defer c.Close()
					if _, err := c.Write(say); err != nil {
						t.Fatal(err)
					}
				}
			}
			for range 3 {
				send, err := until(t, connect(h, Options{}))
				if err != nil {
					t.Fatal(err)
				}
				recv, err := until(t, accept(l))
				if err != nil {
					t.Fatal(err)
				}
				works(t, send, recv)
			}
			if c, err := l.Accept(); c != nil || err != nil {
				t.Fatalf("a stranger got in: %v, %v", c, err)
			}
		})
	}
}

// Many that connect and say nothing hold few descriptors and keep nobody waiting.
func TestSilentStrangers(t *testing.T) {
	if !systest.Alone(t) {
		return
	}
	l, h := listen(t, Options{Fabric: "tcp"})
	before := len(systest.Descriptors(t))
	for i := range 300 {
		c, err := net.Dial("tcp", l.place.addr.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if i%20 > 0 {
			continue
		}
		if more := len(systest.Descriptors(t)) - before - (i + 1); more > 64 {
			t.Fatalf("%d descriptors of %d strangers", more, i+1)
		}
	}
	send, err := until(t, connect(h, Options{}))
	if err != nil {
		t.Fatal(err)
	}
	recv, err := until(t, accept(l))
	if err != nil {
		t.Fatal(err)
	}
	works(t, send, recv)
}

// A peer that knows the key and then says no more is an error that names it.
func TestHalfOpen(t *testing.T) {
	l, _ := listen(t, Options{Fabric: "tcp", Timeout: 300 * time.Millisecond})
	c, err := net.Dial("tcp", l.place.addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(greeting{key: l.place.key, id: 9, lanes: 4, offer: tcp}.bytes()); err != nil {
		t.Fatal(err)
	}
	if _, err := until(t, accept(l)); err == nil || !strings.Contains(err.Error(), c.LocalAddr().String()) {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(c); err != nil { // the answer, and then the end
		t.Fatal(err)
	}
}

func TestConnectFails(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	rude, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer rude.Close()
	go func() {
		for c, err := rude.Accept(); err == nil; c, err = rude.Accept() {
			_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
		}
	}()
	gone, h := listen(t, Options{Fabric: "tcp"})
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	o := Options{Timeout: 300 * time.Millisecond}
	for _, addr := range []string{silent.Addr().String(), rude.Addr().String(), gone.place.addr.String()} {
		p := gone.place
		p.addr = netip.MustParseAddrPort(addr)
		p.put(h)
		if _, err := until(t, connect(h, o)); err == nil || !strings.Contains(err.Error(), addr) {
			t.Fatalf("%s: %v", addr, err)
		}
		if _, err := parseHandle(h); err != nil || h[atState] != 0 {
			t.Fatalf("the handle is used up: %v", err)
		}
	}
	if _, err := gone.Accept(); err == nil {
		t.Fatal("a closed listener accepts")
	}
}

// Many at once, polled on one thread in any order.
func TestManyConnections(t *testing.T) {
	const listeners, each = 4, 6
	var ls []*Listener
	var sends, recvs []caller.Comm
	var hs [][]byte
	for i := range listeners {
		o := Options{Lanes: i + 1}
		if i%2 == 0 {
			o.Fabric = "tcp"
		}
		l, h := listen(t, o)
		ls = append(ls, l)
		for range each {
			hs = append(hs, append([]byte(nil), h...))
		}
	}
	for deadline := systest.Deadline(); len(sends) < len(hs) || len(recvs) < len(hs); runtime.Gosched() {
		for _, l := range ls {
			c, err := accept(l)()
			if err != nil {
				t.Fatal(err)
			}
			if c.P != nil {
				t.Cleanup(c.Close)
				recvs = append(recvs, c)
			}
		}
		for i := range hs {
			if hs[i] == nil {
				continue
			}
			c, err := connect(hs[i], Options{})()
			if err != nil {
				t.Fatal(err)
			}
			if c.P != nil {
				t.Cleanup(c.Close)
				sends, hs[i] = append(sends, c), nil
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("they do not all come about")
		}
	}
	// Which send belongs to which receive the messages tell.
	var ss, rs []*caller.Request
	to := memory(t, len(recvs))
	for i, r := range recvs {
		rs = append(rs, must(t)(r.Irecv(to[i:i+1])))
	}
	from := memory(t, len(sends))
	for i, s := range sends {
		from[i] = byte(i)
		ss = append(ss, must(t)(s.Isend(from[i:i+1])))
	}
	finish(t, append(ss, rs...)...)
	seen := map[byte]bool{}
	for _, b := range to {
		seen[b] = true
	}
	if len(seen) != len(sends) {
		t.Fatalf("%d connections lead to %d others", len(sends), len(seen))
	}
}

// Only a default depends on where the peer is.
func TestCut(t *testing.T) {
	near := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1}
	for _, c := range []struct {
		cut    int
		remote net.IP
		want   int
	}{
		{0, net.IPv4(10, 0, 0, 1), localCut},
		{0, net.ParseIP("::ffff:10.0.0.1"), localCut},
		{0, net.IPv4(10, 0, 0, 2), 0},
		{5, net.IPv4(10, 0, 0, 1), 5},
		{5, net.IPv4(10, 0, 0, 2), 5},
	} {
		if got := cutOf(&Options{Cut: c.cut}, addressed{nil, near, &net.TCPAddr{IP: c.remote, Port: 2}}); got != c.want {
			t.Errorf("cut %d, peer %v: %d, not %d", c.cut, c.remote, got, c.want)
		}
	}
}

// addressed is a connection that has addresses and no more.
type addressed struct {
	net.Conn
	local, remote net.Addr
}

func (a addressed) LocalAddr() net.Addr  { return a.local }
func (a addressed) RemoteAddr() net.Addr { return a.remote }

func TestOptions(t *testing.T) {
	for i, o := range []Options{
		{}, {Lanes: -1}, {Lanes: 17}, {Cut: -1}, {Buffer: -1}, {Ring: 300}, {Ring: 128}, {Zerocopy: "yes"},
		{Fabric: "rdma"}, {Timeout: -1},
	} {
		if i > 0 {
			o.Addr = loopback
		}
		if l, err := Listen(o); err == nil {
			_ = l.Close()
			t.Errorf("%+v is taken", o)
		}
	}
}

// Over loopback the kernel copies in spite of MSG_ZEROCOPY, and says so.
func TestZerocopy(t *testing.T) {
	for setting, last := range map[string]bool{"off": false, "on": true, "auto": false} {
		t.Run(setting, func(t *testing.T) {
			o := Options{Addr: loopback, Fabric: "tcp", Zerocopy: setting}
			send, recv := pair(t, o, o)
			if _, _, z := send.Shape(); z != (setting != "off") {
				t.Fatalf("at first: %v", z)
			}
			for range 3 {
				works(t, send, recv)
			}
			if _, _, z := send.Shape(); z != last {
				t.Fatalf("in the end: %v", z)
			}
		})
	}
}
