// Package identity lets processes that share a secret prove it to each other: they greet over TLS 1.3, each with a
// certificate whose key is derived from the secret, and go on as they are on the connection below. So nobody reads a
// greeting, nobody without the secret has one answered, and whoever learns the secret later cannot read those of
// before. What follows a greeting is not protected; see SECURITY.md.
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
)

// SecretBytes is how much chance a secret of NewSecret holds, in bytes.
const SecretBytes = 32

// NewSecret returns a secret that nobody can guess, in hexadecimal digits.
func NewSecret() string {
	var b [SecretBytes]byte
	_, _ = rand.Read(b[:]) // never fails, says crypto/rand
	return hex.EncodeToString(b[:])
}

// An Identity is what all who know a secret have in common. Of nil, which is where there is no secret, connections
// are left as they are. Any goroutine may use it.
type Identity struct {
	config *tls.Config
	secret []byte
}

// errOther says that the other end is not one of us.
var errOther = errors.New("the other end does not know MCAST_SECRET")

// New returns the identity of a secret; nil without one.
func New(secret string) (*Identity, error) {
	if secret == "" {
		return nil, nil
	}
	i := &Identity{secret: []byte(secret)}
	seed, err := i.Derive("identity", nil)
	if err != nil {
		return nil, err
	}
	private := ed25519.NewKeyFromSeed(seed)
	public := private.Public().(ed25519.PublicKey)
	// Only the key counts: there is no authority, and no name or date means anything.
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		return nil, fmt.Errorf("identity: make a certificate: %w", err)
	}
	i.config = &tls.Config{
		MinVersion:   tls.VersionTLS13,
		NextProtos:   []string{"torch-mcast"},
		Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: private}},
		ClientAuth:   tls.RequireAnyClientCert,
		// Names and authorities are not looked at; VerifyConnection sees to the key.
		InsecureSkipVerify:     true,
		SessionTicketsDisabled: true, // they would come after the greeting
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 1 {
				theirs, ok := s.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
				if ok && subtle.ConstantTimeCompare(theirs, public) == 1 {
					return nil
				}
			}
			return errOther
		},
	}
	return i, nil
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

// Dial proves the secret to whoever listens at the other end of conn, and has it proven. What is said on the
// connection that it returns nobody else can read or change. It is for greetings: when both ends have said and heard
// them, both go on with conn. Deadlines are conn's.
func (i *Identity) Dial(conn net.Conn) (net.Conn, error) {
	if i == nil {
		return conn, nil
	}
	return prove(tls.Client(&records{Conn: conn}, i.config))
}

// Accept is the listener's part of Dial.
func (i *Identity) Accept(conn net.Conn) (net.Conn, error) {
	if i == nil {
		return conn, nil
	}
	return prove(tls.Server(&records{Conn: conn}, i.config))
}

func prove(c *tls.Conn) (net.Conn, error) {
	err := c.Handshake()
	var strange tls.RecordHeaderError
	var alert *net.OpError
	switch {
	case err == nil:
		return c, nil
	case errors.As(err, &strange), errors.As(err, &alert) && alert.Op == "remote error":
		return nil, fmt.Errorf("%w: %w", errOther, err)
	}
	return nil, err
}
