package identity

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/coredump"
)

// Pages is a certificate derived from the secret, used by server and client of metrics: the server shows it, and so
// does each client that may read them. Its key is for this alone: nobody finds the secret by it, and it proves nothing
// to ranks and switches. So a program that reads metrics needs certificate and key (PEM), and not the secret. nil is
// for where there is no secret: everybody may read metrics. Any goroutine may use it.
type Pages struct {
	id    Identity
	turns chan struct{} // holds as many as have a turn
}

// pagesName is whom the certificate is of, for programs that look at names: server_name of Prometheus.
const pagesName = "torch-mcast"

// NewPages returns the certificate of a secret; nil without one. Of the connections to a server, so many at a time may
// keep a core busy with cryptography.
func NewPages(secret string, turns int) (*Pages, error) {
	if secret == "" {
		return nil, nil
	}
	p := &Pages{Identity{secret: []byte(secret)}, make(chan struct{}, turns)}
	// Every host has to make the same one, at any time: programs take it for an authority, too.
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: pagesName}, DNSNames: []string{pagesName},
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), // RFC 5280, section 4.1.2.5
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
	if err := p.id.certify("pages", template); err != nil {
		return nil, err
	}
	return p, nil
}

// PEM returns the certificate and its key. Their holder may read metrics, and can pose as the server of metrics.
func (p *Pages) PEM() ([]byte, error) {
	key, err := x509.MarshalPKCS8PrivateKey(p.id.certificate.PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("identity: %w", err)
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.id.certificate.Certificate[0]})
	return append(certificate, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})...), nil
}

// Proven reports whether the other end of a connection has proven to have the certificate; nil is one without TLS.
func (p *Pages) Proven(s *tls.ConnectionState) bool {
	return p == nil || s != nil && len(s.PeerCertificates) > 0 && p.id.is(s.PeerCertificates[0].PublicKey)
}

// Client returns a client's settings for TLS: it shows the certificate, and believes a server of any name that has the
// same certificate.
func (p *Pages) Client() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		Certificates:       []tls.Certificate{p.id.certificate},
		InsecureSkipVerify: true, // names and authorities are not looked at
		VerifyConnection: func(s tls.ConnectionState) error {
			coredump.OmitHeap() // there are keys of the session by now
			if !p.Proven(&s) {
				return ErrOther
			}
			return nil
		},
	}
}

// Accept is the server's part of TLS: it shows the certificate to a client, and reports whether the client has proven
// to have it, too. Other clients are not refused, and one that does not speak TLS gets its connection as it was, so
// that the server can explain by HTTPS or HTTP what it wants. It waits at most within for the client, in all, and
// without a limit for its turn to compute.
func (p *Pages) Accept(conn net.Conn, within time.Duration) (on net.Conn, proven bool, err error) {
	p.turns <- struct{}{}
	defer func() { <-p.turns }()
	turn := &taking{conn, p.turns, within}
	defer func() { turn.turns = nil }()
	below := &opened{Conn: turn}
	if _, err := io.ReadFull(turn, below.first[:]); err != nil {
		return nil, false, err
	}
	if below.first[0] != handshake {
		return below, false, nil
	}
	read := &records{Conn: below, early: maxEarly}
	c := tls.Server(read, &tls.Config{
		MinVersion:             tls.VersionTLS13,
		NextProtos:             []string{"http/1.1"},
		Certificates:           []tls.Certificate{p.id.certificate},
		ClientAuth:             tls.RequestClientCert, // Proven says whose certificate it is
		SessionTicketsDisabled: true,
	})
	if err := c.Handshake(); err != nil {
		return nil, false, err
	}
	coredump.OmitHeap()
	read.early = everything
	state := c.ConnectionState()
	return c, p.Proven(&state), nil
}

// opened is a connection with its first byte read already; Read gives that byte out again.
type opened struct {
	net.Conn
	first [1]byte
	again bool
}

// Read implements net.Conn.
func (o *opened) Read(b []byte) (int, error) {
	if o.again || len(b) == 0 {
		return o.Conn.Read(b)
	}
	o.again = true
	return copy(b, o.first[:]), nil
}
