package p2p

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/torch-mcast/torch-mcast/internal/transport/identity"
	"github.com/torch-mcast/torch-mcast/internal/transport/ktls"
	"github.com/torch-mcast/torch-mcast/ncclnet/p2p/caller"
)

const secret = "correct-horse-battery-staple"

var known = sync.OnceValues(func() (*identity.Identity, error) { return identity.New(secret) })

// withSecret returns options of an end that knows a secret.
func withSecret(t *testing.T, o Options) Options {
	t.Helper()
	var err error
	if o.Identity, err = known(); err != nil {
		t.Fatal(err)
	}
	if !o.Addr.IsValid() {
		o.Addr = loopback
	}
	if o.Fabric == "" {
		o.Fabric = "tcp"
	}
	return o
}

// pretence stands for a kernel: it says that it can seal, or why not, and records the keys instead of sealing.
type pretence struct {
	unable error
	mu     sync.Mutex
	conns  []net.Conn
	keys   []ktls.Keys // by connection
}

func (p *pretence) kernel() kernel {
	return kernel{func() error { return p.unable }, func(c net.Conn, k ktls.Keys) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		at := slices.Index(p.conns, c)
		if at < 0 {
			at = len(p.conns)
			p.conns, p.keys = append(p.conns, c), append(p.keys, ktls.Keys{})
		}
		for _, d := range []struct{ known, key *[]byte }{{&p.keys[at].Out, &k.Out}, {&p.keys[at].In, &k.In}} {
			if *d.key != nil && *d.known != nil {
				return errors.New("a direction is sealed twice")
			}
			if *d.key != nil {
				*d.known = bytes.Clone(*d.key)
			}
		}
		return nil
	}}
}

// Both ends seal or neither does. If one end requires it and the other cannot, both name the missing part and its end.
func TestSealAgreement(t *testing.T) {
	noTLS := errors.New("no module")
	type end struct {
		tls    string
		unable error
	}
	for _, c := range []struct {
		out, in  end
		sealed   bool
		outSays  string // in its error, if the connection fails, else in its warning
		inSays   string
		refusing bool
	}{
		{out: end{"auto", nil}, in: end{"", nil}, sealed: true},
		{out: end{"require", nil}, in: end{"auto", nil}, sealed: true},
		{out: end{"auto", nil}, in: end{"require", nil}, sealed: true},
		{out: end{"require", nil}, in: end{"require", nil}, sealed: true},
		{out: end{"auto", noTLS}, in: end{"auto", noTLS}, outSays: "no module", inSays: "no module"},
		{out: end{"auto", noTLS}, in: end{"auto", nil}, outSays: "no module", inSays: "the peer's kernel has no TLS"},
		{out: end{"auto", nil}, in: end{"auto", noTLS}, outSays: "the peer's kernel has no TLS", inSays: "no module"},
		{out: end{"off", nil}, in: end{"auto", nil}, inSays: "MCAST_NET_TLS=off at the peer"},
		{out: end{"auto", nil}, in: end{"off", nil}, outSays: "MCAST_NET_TLS=off at the peer"},
		{out: end{"off", noTLS}, in: end{"off", nil}},
		{
			out: end{"require", nil}, in: end{"auto", noTLS}, refusing: true,
			outSays: "MCAST_NET_TLS=require: the peer's kernel has no TLS",
			inSays:  "MCAST_NET_TLS=require at the peer: no module",
		},
		{
			out: end{"auto", noTLS}, in: end{"require", nil}, refusing: true,
			outSays: "MCAST_NET_TLS=require at the peer: no module",
			inSays:  "MCAST_NET_TLS=require: the peer's kernel has no TLS",
		},
		{
			out: end{"off", nil}, in: end{"require", nil}, refusing: true,
			outSays: "MCAST_NET_TLS=require at the peer: MCAST_NET_TLS=off at this end",
			inSays:  "MCAST_NET_TLS=require: MCAST_NET_TLS=off at the peer",
		},
		{
			out: end{"require", nil}, in: end{"off", nil}, refusing: true,
			outSays: "MCAST_NET_TLS=require: MCAST_NET_TLS=off at the peer",
			inSays:  "MCAST_NET_TLS=require at the peer: MCAST_NET_TLS=off at this end",
		},
	} {
		t.Run(fmt.Sprintf("%s %v to %s %v", c.out.tls, c.out.unable, c.in.tls, c.in.unable), func(t *testing.T) {
			var warned [2]error
			var kernels [2]*pretence
			var ends [2]Options
			for i, e := range []end{c.out, c.in} {
				kernels[i] = &pretence{unable: e.unable}
				ends[i] = withSecret(t,
					Options{Lanes: 3, TLS: e.tls, kernel: kernels[i].kernel(), Unsealed: func(why error) { warned[i] = why }})
			}
			l, h := listen(t, ends[1])
			_, outErr := until(t, connect(h, ends[0]))
			_, inErr := until(t, accept(l))
			if !c.refusing {
				if outErr != nil || inErr != nil {
					t.Fatal(outErr, inErr)
				}
				outErr, inErr = warned[0], warned[1]
			}
			for _, s := range []struct {
				err  error
				want string
			}{{outErr, c.outSays}, {inErr, c.inSays}} {
				if (s.err == nil) != (s.want == "") || s.err != nil && !strings.Contains(s.err.Error(), s.want) {
					t.Errorf("said %v, not %q", s.err, s.want)
				}
			}
			checkKeys(t, kernels, c.sealed, 3)
		})
	}
}

// checkKeys sees that both ends have sealed each lane, by keys that no other lane or direction has.
func checkKeys(t *testing.T, ends [2]*pretence, sealed bool, lanes int) {
	t.Helper()
	if !sealed {
		lanes = 0
	}
	out, in := ends[0].keys, ends[1].keys
	if len(out) != lanes || len(in) != lanes {
		t.Fatalf("%d and %d lanes are sealed, not %d", len(out), len(in), lanes)
	}
	seen := map[string]bool{}
	for i, k := range out {
		if !bytes.Equal(k.Out, in[i].In) || !bytes.Equal(k.In, in[i].Out) || len(k.In) != ktls.KeySize {
			t.Fatalf("the ends of lane %d have different keys", i)
		}
		seen[string(k.In)], seen[string(k.Out)] = true, true
	}
	if len(seen) != 2*lanes {
		t.Fatalf("%d keys of %d lanes", len(seen), lanes)
	}
}

// What can never be is refused at once, by both ends.
func TestSealRefused(t *testing.T) {
	unable := &pretence{unable: errors.New("no module")}
	for want, o := range map[string]Options{
		`TLS "yes"; allowed are auto, require and off`: {TLS: "yes"},
		"set MCAST_SECRET on all ranks":                {TLS: "require"},
		"MCAST_NET_TLS=require: no module": withSecret(t,
			Options{TLS: "require", Fabric: "tcp", kernel: unable.kernel()}),
		"MCAST_NET_TLS=require and MCAST_NET_FABRIC=verbs": withSecret(t,
			Options{TLS: "require", Fabric: "verbs", Device: &Device{}}),
	} {
		_, h := listen(t, Options{})
		o.Addr = loopback
		if _, err := Listen(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, not %q", err, want)
		}
		if _, err := Connect(h, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, not %q", err, want)
		}
	}
}

// Where no TCP carries messages there is nothing to seal, and without a secret nothing to seal by.
func TestSealNothing(t *testing.T) {
	unable := &pretence{unable: errors.New("no module")}
	warn := func(why error) { t.Error(why) }
	for _, o := range []Options{
		withSecret(t, Options{Fabric: "auto", TLS: "require", kernel: unable.kernel(), Unsealed: warn}),
		withSecret(t, Options{Fabric: "shm", kernel: (&pretence{}).kernel(), Unsealed: warn}),
		{Addr: loopback, Fabric: "tcp", kernel: (&pretence{}).kernel(), Unsealed: warn},
	} {
		send, recv := pair(t, o, o)
		works(t, send, recv)
	}
}

// What two ends agree upon nobody on the path can read, and so nobody can talk them out of sealing.
func TestAgreementIsSealed(t *testing.T) {
	path := &onPath{}
	o := withSecret(t, Options{Lanes: 2, TLS: "off"})
	send, recv := path.pair(t, o)
	works(t, send, recv)
	said := binary.LittleEndian.AppendUint32(nil, magic) // begins greetings and answers
	if path.contains(said) {
		t.Fatal("a greeting or its answer is in the clear")
	}
	path = &onPath{}
	send, recv = path.pair(t, Options{Addr: loopback, Fabric: "tcp"})
	works(t, send, recv)
	if !path.contains(said) {
		t.Fatal("without a secret they are in the clear, and did not pass here")
	}
}

// onPath sits between two ends: it records all bytes that pass, and changes some on request.
type onPath struct {
	mu     sync.Mutex
	seen   [][]byte            // by direction of a connection
	change func([]byte) []byte // for bytes from the connecting end
	far    []*net.TCPConn      // towards the connecting ends
}

func (p *onPath) pair(t *testing.T, o Options) (send, recv caller.Comm) {
	t.Helper()
	l, h := listen(t, o)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for from, err := ln.Accept(); err == nil; from, err = ln.Accept() {
			to, err := net.Dial("tcp", l.place.addr.String())
			if err != nil {
				return
			}
			p.mu.Lock()
			p.far = append(p.far, from.(*net.TCPConn))
			p.mu.Unlock()
			go p.pass(from, to, true)
			go p.pass(to, from, false)
		}
	}()
	via := l.place
	via.addr = ln.Addr().(*net.TCPAddr).AddrPort()
	via.put(h)
	if send, err = until(t, connect(h, o)); err != nil {
		t.Fatal(err)
	}
	if recv, err = until(t, accept(l)); err != nil {
		t.Fatal(err)
	}
	return send, recv
}

func (p *onPath) pass(from, to net.Conn, forth bool) {
	p.mu.Lock()
	mine := len(p.seen)
	p.seen = append(p.seen, nil)
	p.mu.Unlock()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		p.mu.Lock()
		p.seen[mine] = append(p.seen[mine], b[:n]...)
		change := p.change
		p.mu.Unlock()
		pass := b[:n]
		if change != nil && forth && n > 0 {
			pass = change(pass)
		}
		if _, e := to.Write(pass); e != nil || err != nil {
			break
		}
	}
	// As the kernel does: an end of the stream at one side is passed on to the other side.
	_ = to.(*net.TCPConn).CloseWrite()
	_, _ = io.Copy(io.Discard, from)
}

// begin has what passes changed from here on.
func (p *onPath) begin(change func([]byte) []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.change = change
}

// contains reports whether some bytes have passed in the clear.
func (p *onPath) contains(b []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.seen {
		if bytes.Contains(s, b) {
			return true
		}
	}
	return false
}
