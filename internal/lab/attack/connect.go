package attack

import (
	"context"
	"crypto/ed25519"
	crand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/big"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/torch-mcast/torch-mcast/internal/config"
)

// ConnectOptions say which listener strangers connect to, and how.
type ConnectOptions struct {
	To     netip.AddrPort
	Switch bool    // it is an aggregation node's; else one of ranks
	Count  int     // connections to make
	AtOnce int     // of them open at a time
	Rate   float64 // of them a second; 0: as fast as they go
	Seed   uint64
}

// ConnectReport is what was done.
type ConnectReport struct {
	Made     int            `json:"made"`    // connections
	Refused  int            `json:"refused"` // of more, since nobody listened or would take them
	By       map[string]int `json:"by"`      // made, by what the stranger said
	Said     int64          `json:"said"`    // bytes that strangers sent on them
	Heard    int64          `json:"heard"`   // and got back
	Admitted int            `json:"admitted"`
	Seconds  float64        `json:"seconds"`
}

// approach is what a stranger does on a connection.
type approach int

const (
	silent      approach = iota // nothing, until the other end hangs up
	garbage                     // random bytes
	cut                         // the beginning of a greeting by TLS
	otherSecret                 // a whole greeting, with a secret of his own
	echo                        // what he hears
	hangUp                      // at once
	approaches                  // how many there are
)

// String names an approach in reports.
func (a approach) String() string {
	return [...]string{"silent", "garbage", "cut", "other secret", "echo", "hang up"}[a]
}

// held bounds how long a stranger stays: longer than any listener here has him.
const held = 30 * time.Second

// Connect has strangers connect until Count have connected, or ctx ends, which is no error. A listener that admits a
// stranger has a fault, and the report counts it. A switch admits a stranger if it takes the stranger's proof and
// answers with its own. A rank admits one if it does not refuse it by an alert; a rank that has too many strangers
// hangs up on some without an alert, which is no admission.
func Connect(ctx context.Context, o ConnectOptions) (ConnectReport, error) {
	if !o.To.IsValid() || o.Count < 1 || o.AtOnce < 1 || o.Rate < 0 {
		return ConnectReport{},
			config.Mistakef("attack: %d connections to %v, %d at once, %g a second: want an address, 1 or more, 1 or more, "+
				"and a rate of 0 (none) or more", o.Count, o.To, o.AtOnce, o.Rate)
	}
	s, err := newStrangers(o)
	if err != nil {
		return ConnectReport{}, err
	}
	chance := rand.New(rand.NewPCG(o.Seed, 2))
	start := time.Now()
	var all errgroup.Group
	all.SetLimit(o.AtOnce)
	for n := 0; n < o.Count && ctx.Err() == nil; n++ {
		if o.Rate > 0 {
			select {
			case <-time.After(time.Until(start.Add(time.Duration(float64(n) / o.Rate * float64(time.Second))))):
			case <-ctx.Done():
				continue
			}
		}
		by, seed := approach(chance.IntN(int(approaches))), chance.Uint64()
		all.Go(func() error {
			s.connect(ctx, by, rand.New(rand.NewPCG(seed, 3)))
			return nil
		})
	}
	_ = all.Wait()
	r := ConnectReport{
		Refused: s.refused, By: map[string]int{}, Said: s.said.Load(), Heard: s.heard.Load(),
		Admitted: int(s.admitted.Load()),
		Seconds:  time.Since(start).Seconds(),
	}
	for by, n := range s.made {
		r.Made += n
		r.By[approach(by).String()] = n
	}
	return r, nil
}

// strangers are under way.
type strangers struct {
	ConnectOptions
	proof *tls.Config // of a secret of their own; any proof of the other end is accepted
	// decided: that ranks may take to refuse a proof: they keep who began to prove one for longer
	decided               time.Duration
	said, heard, admitted atomic.Int64

	mu      sync.Mutex
	made    []int // by approach
	refused int
}

func newStrangers(o ConnectOptions) (*strangers, error) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, fmt.Errorf("attack: make a key: %w", err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	certificate, err := x509.CreateCertificate(crand.Reader, template, template, public, private)
	if err != nil {
		return nil, fmt.Errorf("attack: make a certificate: %w", err)
	}
	return &strangers{ConnectOptions: o, decided: 10 * time.Second, made: make([]int, approaches), proof: &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"torch-mcast"}, ClientAuth: tls.RequireAnyClientCert,
		InsecureSkipVerify: true,
		Certificates:       []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: private}},
	}}, nil
}

// connect is one stranger's connection, from its beginning to its end.
func (s *strangers) connect(ctx context.Context, by approach, chance *rand.Rand) {
	ctx, cancel := context.WithTimeout(ctx, held)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.To.String())
	s.mu.Lock()
	switch {
	case err == nil:
		s.made[by]++
	case ctx.Err() == nil: // it was not cancelled
		s.refused++
	}
	s.mu.Unlock()
	if err != nil {
		return
	}
	c := &counted{Conn: conn, strangers: s}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer c.Close() //nolint:errcheck // what ends it does not matter
	switch by {
	case garbage:
		b := make([]byte, 1+chance.IntN(8<<10))
		scramble(chance, b)
		_, _ = c.Write(b)
	case cut:
		c.left = 1 + chance.IntN(200) // a greeting is longer
		_ = s.prove(c)
	case otherSecret:
		if s.prove(c) == nil {
			s.admitted.Add(1)
		}
	case echo:
		_, _ = io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{c}, make([]byte, 4<<10))
	case hangUp:
		return
	case silent, approaches:
	}
	_, _ = io.Copy(io.Discard, struct{ io.Reader }{c})
}

// prove proves the strangers' own secret, as a member of a switch, which is TLS's client, or as a rank to another. It
// returns nil if it was taken.
func (s *strangers) prove(c net.Conn) error {
	if !s.Switch {
		t := tls.Client(c, s.proof)
		if err := t.Handshake(); err != nil {
			return err
		}
		return s.refusal(t)
	}
	var length [4]byte // of the frame by which a switch says that it is one
	if _, err := io.ReadFull(c, length[:]); err != nil {
		return err
	}
	if _, err := io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint32(length[:]))); err != nil {
		return err
	}
	return tls.Server(c, &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		mine := s.proof.Clone()
		mine.NextProtos = hello.SupportedProtos // the switch's own names for the protocol
		return mine, nil
	}}).Handshake()
}

// refusal returns the alert by which a rank refuses a proof, which it looks at after the handshake, or why there is
// none to be had; nil if it says something else, or waits for more.
func (s *strangers) refusal(t *tls.Conn) error {
	if err := t.SetReadDeadline(time.Now().Add(s.decided)); err != nil {
		return err
	}
	_, err := t.Read(make([]byte, 1))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}

// counted counts the bytes of a stranger's connection, and may cut it short.
type counted struct {
	net.Conn
	*strangers
	left int // that he says before he falls silent; 0: no end
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.heard.Add(int64(n))
	return n, err
}

var errSilent = errors.New("attack: he says no more")

func (c *counted) Write(b []byte) (int, error) {
	cut := c.left > 0 && len(b) >= c.left
	if cut {
		b = b[:c.left]
	}
	n, err := c.Conn.Write(b)
	c.said.Add(int64(n))
	if err == nil && cut {
		err = errSilent
	}
	c.left = max(0, c.left-n)
	return n, err
}
