package identity

import (
	"crypto/tls"
	"fmt"
	"net"
	"runtime"
	"slices"
	"time"
)

// A Ring is the identities of several secrets, for a switch with tenants: it serves all of them and learns from a
// connection which secret its peer has. The Ring is the client of TLS, although the other end has connected. So the
// other end's proof comes first, in a certificate that nobody on the path can read: no hint at the secret is sent
// before, and a stranger is shown nothing of the ring's secrets. Any goroutine may use it.
type Ring struct {
	identities []*Identity
	turns      chan struct{} // holds as many as have a turn
}

// sessions is the protocol of Recognize and Present in TLS (ALPN): a proof for a Ring passes nowhere else.
const sessions = "torch-mcast switch"

// NewRing returns the ring of some secrets, all different. At a time, so many of the connections that it is asked about
// may keep a core busy with cryptography.
func NewRing(secrets []string, turns int) (*Ring, error) {
	r := &Ring{turns: make(chan struct{}, turns)}
	for _, secret := range secrets {
		i, err := New(secret)
		if err != nil {
			return nil, err
		}
		if i == nil || r.find(i.public) >= 0 {
			return nil, fmt.Errorf("identity: secret %d of the ring is empty, or there twice", len(r.identities)+1)
		}
		r.identities = append(r.identities, i)
	}
	return r, nil
}

// find returns the number of the identity with a public key, or -1.
func (r *Ring) find(key any) int {
	return slices.IndexFunc(r.identities, func(i *Identity) bool { return i.is(key) })
}

// Recognize has the other end of conn, which calls Present, prove one of the ring's secrets, and then proves the same
// one in return. It returns the number of that secret. It waits at most within for the other end, in all, and without a
// limit for its turn to compute.
func (r *Ring) Recognize(conn net.Conn, within time.Duration) (g *Greeting, secret int, err error) {
	secret = -1
	config := base(sessions)
	config.VerifyConnection = func(s tls.ConnectionState) error {
		key, err := proven(&s)
		if err != nil {
			return err
		}
		if secret = r.find(key); secret < 0 {
			return ErrOther
		}
		return nil
	}
	// It is called after VerifyConnection, if that finds nothing wrong.
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return &r.identities[secret].certificate, nil
	}
	r.turns <- struct{}{}
	defer func() { <-r.turns }()
	turn := &taking{conn, r.turns, within}
	below := &records{Conn: turn, early: maxEarly}
	c := tls.Client(below, config)
	if err := prove(c, below); err != nil {
		return nil, -1, err
	}
	turn.turns = nil
	return &Greeting{Conn: c, below: conn, client: true}, secret, conn.SetDeadline(time.Time{})
}

// Present proves the secret to a Ring at the other end of conn, and has it proven. i is not nil. Deadlines are conn's.
func (i *Identity) Present(conn net.Conn) (*Greeting, error) {
	return i.serve(conn, sessions)
}

// coresATurn is how many cores there are for each turn to compute.
const coresATurn = 8

// Turns returns how many connections may keep a core busy with cryptography at a time, however many ask: one core in
// eight, and one at least. A core checks some 2000 proofs a second.
func Turns() int { return max(1, runtime.NumCPU()/coresATurn) }

// taking is a connection with a turn, which it gives back while it waits for the other end.
type taking struct {
	net.Conn
	turns chan struct{} // nil: it needs none any more
	left  time.Duration // that it may still wait
}

// Read implements net.Conn.
func (t *taking) Read(b []byte) (int, error) { return t.wait(t.SetReadDeadline, t.Conn.Read, b) }

// Write implements net.Conn.
func (t *taking) Write(b []byte) (int, error) { return t.wait(t.SetWriteDeadline, t.Conn.Write, b) }

func (t *taking) wait(deadline func(time.Time) error, call func([]byte) (int, error), b []byte) (int, error) {
	if t.turns == nil {
		return call(b)
	}
	<-t.turns
	defer func() { t.turns <- struct{}{} }()
	begun := time.Now()
	if err := deadline(begun.Add(t.left)); err != nil {
		return 0, err
	}
	n, err := call(b)
	t.left -= time.Since(begun)
	return n, err
}
