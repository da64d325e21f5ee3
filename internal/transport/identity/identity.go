// Package identity lets processes that share a secret prove it to each other. They greet over TLS 1.3, each with a
// certificate for a key derived from the secret, and go on in records of their own on the connection below
// (transport/record). So nobody reads what they say, nobody without the secret has a greeting answered, and a later
// leak of the secret reveals nothing that was said before. See SECURITY.md.
package identity

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"net"

	"github.com/torch-mcast/torch-mcast/internal/coredump"
	"github.com/torch-mcast/torch-mcast/internal/transport/record"
)

// secretBytes is how much chance a secret of NewSecret holds, in bytes.
const secretBytes = 32

// NewSecret returns a secret that nobody can guess, in hexadecimal digits.
func NewSecret() string {
	var b [secretBytes]byte
	_, _ = rand.Read(b[:]) // never fails, says crypto/rand
	return hex.EncodeToString(b[:])
}

// An Identity is common to all who know a secret. Without a secret it is nil, and connections are left as they are. Any
// goroutine may use it.
type Identity struct {
	secret      []byte
	public      ed25519.PublicKey
	certificate tls.Certificate
}

// ErrOther says that the other end has proven another secret than ours.
var ErrOther = errors.New("the other end has another MCAST_SECRET")

// errOther says that the other end is not one of us.
var errOther = errors.New("the other end does not know MCAST_SECRET")

// New returns the identity of a secret; nil without one.
func New(secret string) (*Identity, error) {
	if secret == "" {
		return nil, nil
	}
	i := &Identity{secret: []byte(secret)}
	// Only the key counts: there is no authority, and no name or date means anything.
	if err := i.certify("identity", &x509.Certificate{SerialNumber: big.NewInt(1)}); err != nil {
		return nil, err
	}
	return i, nil
}

// certify derives the identity's key for a purpose, and signs its certificate with it.
func (i *Identity) certify(purpose string, template *x509.Certificate) error {
	seed, err := i.Derive(purpose, nil)
	if err != nil {
		return err
	}
	private := ed25519.NewKeyFromSeed(seed)
	i.public = private.Public().(ed25519.PublicKey)
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, i.public, private)
	if err != nil {
		return fmt.Errorf("identity: make a certificate: %w", err)
	}
	i.certificate = tls.Certificate{Certificate: [][]byte{certificate}, PrivateKey: private}
	coredump.OmitHeap()
	return nil
}

// ranks is the protocol of Dial and Accept in TLS (ALPN).
const ranks = "torch-mcast"

// base has the settings of both ends for a protocol, with no secret in it. The caller checks the other end's key.
func base(protocol string) *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		NextProtos:             []string{protocol},
		ClientAuth:             tls.RequireAnyClientCert,
		InsecureSkipVerify:     true, // names and authorities are not looked at
		SessionTicketsDisabled: true, // they would come after the greeting
	}
}

// config has the settings of an end that proves the secret and demands the same proof.
func (i *Identity) config(protocol string) *tls.Config {
	c := base(protocol)
	c.Certificates = []tls.Certificate{i.certificate}
	c.VerifyConnection = func(s tls.ConnectionState) error {
		key, err := proven(&s)
		if err == nil && !i.is(key) {
			err = ErrOther
		}
		return err
	}
	return c
}

// proven returns the key that the other end of a connection has, if it is there for the same protocol.
func proven(s *tls.ConnectionState) (key any, err error) {
	if len(s.PeerCertificates) != 1 || s.NegotiatedProtocol == "" { // any server of TLS is like that
		return nil, errOther
	}
	return s.PeerCertificates[0].PublicKey, nil
}

// is reports whether a key is the identity's.
func (i *Identity) is(key any) bool {
	theirs, ok := key.(ed25519.PublicKey)
	return ok && subtle.ConstantTimeCompare(theirs, i.public) == 1
}

// Derive returns a key of 32 bytes for a purpose, by HKDF-SHA256 (RFC 5869). Those of different salts have nothing to
// do with each other. i must not be nil.
func (i *Identity) Derive(purpose string, salt []byte) ([]byte, error) {
	key, err := hkdf.Key(sha256.New, i.secret, salt, "torch-mcast "+purpose, 32)
	if err != nil {
		return nil, fmt.Errorf("identity: derive the key for %s: %w", purpose, err)
	}
	return key, nil
}

// Name tells identities apart without giving the secret away; empty for nil.
func (i *Identity) Name() (string, error) {
	if i == nil {
		return "", nil
	}
	key, err := i.Derive("name", nil)
	if err != nil {
		return "", err
	}
	return hex.EncodeToString(key[:8]), nil
}

// A Greeting is a connection on which both ends have proven that they know the secret: nobody else can read or change
// the bytes on it. For a nil Identity it is the connection as it was.
type Greeting struct {
	net.Conn
	below  net.Conn
	client bool
}

// Dial proves the secret to the other end of conn, and has it proven. Deadlines are conn's.
func (i *Identity) Dial(conn net.Conn) (*Greeting, error) {
	if i == nil {
		return &Greeting{Conn: conn, below: conn}, nil
	}
	below := &records{Conn: conn, early: maxEarly}
	c := tls.Client(below, i.config(ranks))
	return &Greeting{Conn: c, below: conn, client: true}, prove(c, below)
}

// Accept is the listener's part of Dial.
func (i *Identity) Accept(conn net.Conn) (*Greeting, error) {
	if i == nil {
		return &Greeting{Conn: conn, below: conn}, nil
	}
	return i.serve(conn, ranks)
}

// serve proves the secret, and has it proven, as TLS's server.
func (i *Identity) serve(conn net.Conn, protocol string) (*Greeting, error) {
	below := &records{Conn: conn, early: maxEarly}
	c := tls.Server(below, i.config(protocol))
	return &Greeting{Conn: c, below: conn}, prove(c, below)
}

// Below returns the connection that the greeting is on, on which neither end says anything before it has said and heard
// all that it says and hears on the greeting.
func (g *Greeting) Below() net.Conn { return g.below }

// Follow returns what both ends go on with, when each has said and heard all that it says and hears on the greeting.
func (g *Greeting) Follow() (net.Conn, error) {
	if _, ok := g.Conn.(*tls.Conn); !ok {
		return g.below, nil
	}
	var s record.Secrets
	var err error
	if s.Out, s.In, err = g.Keys("records", record.SecretSize); err != nil {
		return nil, err
	}
	c, err := record.New(g.below, s)
	if err != nil {
		return nil, err // and no *record.Conn that is nil
	}
	return c, nil
}

// Keys returns keys for a purpose, size bytes for each direction, which nobody but the other end has, as In what this
// one has as Out. They are of the greeting's TLS session (its exporter, RFC 8446, section 7.5), and so of this
// connection alone. Of no identity there are none.
func (g *Greeting) Keys(purpose string, size int) (out, in []byte, err error) {
	c, ok := g.Conn.(*tls.Conn)
	if !ok {
		return nil, nil, errors.New("identity: there is no secret to take the keys of a connection from")
	}
	state := c.ConnectionState()
	keys, err := state.ExportKeyingMaterial("EXPORTER-torch-mcast-"+purpose, nil, 2*size)
	if err != nil {
		return nil, nil, fmt.Errorf("identity: derive the keys of a connection: %w", err)
	}
	coredump.OmitHeap()
	if !g.client {
		return keys[size:], keys[:size], nil
	}
	return keys[:size], keys[size:], nil
}

func prove(c *tls.Conn, below *records) error {
	err := c.Handshake()
	if err == nil {
		below.early = everything
		coredump.OmitHeap()
		return nil
	}
	var strange tls.RecordHeaderError
	var alert *net.OpError
	switch remote := errors.As(err, &alert) && alert.Op == "remote error"; {
	case remote && alert.Err.Error() == badCertificate.Error():
		return fmt.Errorf("%w: %w", ErrOther, err)
	case remote, errors.As(err, &strange):
		return fmt.Errorf("%w: %w", errOther, err)
	}
	return err
}

// badCertificate is the alert of an end to which another secret was proven (RFC 8446, section 6.2).
const badCertificate tls.AlertError = 42

// Heard returns the first bytes that the other end has said, if a greeting failed since it has no secret.
func Heard(err error) []byte {
	var strange tls.RecordHeaderError
	if !errors.As(err, &strange) {
		return nil
	}
	return strange.RecordHeader[:]
}

// Begins tells whether bytes begin a greeting of an end with a secret: a handshake of TLS.
func Begins(b []byte) bool { return len(b) > 1 && b[0] == handshake && b[1] == majorVersion }
