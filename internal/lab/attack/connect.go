package attack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/torch-mcast/torch-mcast/internal/session"
	"github.com/torch-mcast/torch-mcast/internal/transport/identity"
)

// ConnectOptions say whose listener strangers connect to, and how.
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

// Guise is what a stranger says on a connection.
type Guise int

// The guises.
const (
	Silent      Guise = iota // nothing, until the other end hangs up
	Garbage                  // bytes of chance
	Cut                      // the beginning of a greeting by TLS
	Other                    // a whole greeting, with a secret of his own
	Reflect                  // what he hears
	HangUp                   // hangs up at once
	guisesCount              // how many there are
)

// String names a guise in reports.
func (g Guise) String() string {
	return [...]string{"silent", "garbage", "cut", "other secret", "reflect", "hang up"}[g]
}

// held bounds how long a stranger stays: longer than any listener here has him.
const held = 30 * time.Second

// Connect has strangers connect until Count have, or ctx ends, which is no error. A listener that admits one has
// a fault: the report counts them.
func Connect(ctx context.Context, o ConnectOptions) (ConnectReport, error) {
	if !o.To.IsValid() || o.Count < 1 || o.AtOnce < 1 || o.Rate < 0 {
		return ConnectReport{}, fmt.Errorf("attack: %d connections to %v, %d at once, %g a second: want an address, 1 or more, 1 or more, and a rate of 0 (none) or more", o.Count, o.To, o.AtOnce, o.Rate)
	}
	s := &strangers{ConnectOptions: o, secret: identity.NewSecret(), made: make([]int, guisesCount)}
	var err error
	if s.identity, err = identity.New(s.secret); err != nil {
		return ConnectReport{}, err
	}
	chance := rand.New(rand.NewPCG(o.Seed, 2))
	start := time.Now()
	var all errgroup.Group
	all.SetLimit(o.AtOnce)
	for n := 0; n < o.Count && ctx.Err() == nil; n++ {
		if o.Rate > 0 {
			time.Sleep(time.Until(start.Add(time.Duration(float64(n) / o.Rate * float64(time.Second)))))
		}
		guise, seed := Guise(chance.IntN(int(guisesCount))), chance.Uint64()
		all.Go(func() error {
			s.connect(ctx, guise, rand.New(rand.NewPCG(seed, 3)))
			return nil
		})
	}
	_ = all.Wait()
	r := ConnectReport{
		Refused: s.refused, By: map[string]int{}, Said: s.said.Load(), Heard: s.heard.Load(), Admitted: int(s.admitted.Load()),
		Seconds: time.Since(start).Seconds(),
	}
	for g, n := range s.made {
		r.Made += n
		r.By[Guise(g).String()] = n
	}
	return r, nil
}

// strangers are under way.
type strangers struct {
	ConnectOptions
	secret                string // their own
	identity              *identity.Identity
	said, heard, admitted atomic.Int64

	mu      sync.Mutex
	made    []int // by guise
	refused int
}

// connect is one stranger's connection, from its beginning to its end.
func (s *strangers) connect(ctx context.Context, guise Guise, chance *rand.Rand) {
	ctx, cancel := context.WithTimeout(ctx, held)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.To.String())
	s.mu.Lock()
	if err != nil {
		s.refused++
	} else {
		s.made[guise]++
	}
	s.mu.Unlock()
	if err != nil {
		return
	}
	c := &counted{Conn: conn, strangers: s}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer c.Close() //nolint:errcheck // what ends it does not matter
	switch guise {
	case Garbage:
		b := make([]byte, 1+chance.IntN(8<<10))
		scramble(chance, b)
		_, _ = c.Write(b)
	case Cut:
		c.left = 1 + chance.IntN(200) // a ClientHello is longer
		s.greet(ctx, c)
	case Other:
		s.greet(ctx, c)
		return
	case Reflect:
		_, _ = io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{c}, make([]byte, 4<<10))
	case HangUp:
		return
	case Silent, guisesCount:
	}
	_, _ = io.Copy(io.Discard, struct{ io.Reader }{c})
}

// greet proves a secret of the stranger's own, as a member of a switch or as a rank.
func (s *strangers) greet(ctx context.Context, c net.Conn) {
	if s.Switch {
		member, err := session.Dial(ctx, s.To.String(), session.Hello{
			Job: 1, Ranks: 2, Secret: s.secret, Network: through{conn: c},
		})
		if err == nil {
			s.admitted.Add(1)
			_ = member.Close(errors.New("it was admitted"))
		}
		return
	}
	if _, err := s.identity.Dial(c); err == nil {
		s.admitted.Add(1)
	}
}

// through is a network on which there is one connection.
type through struct {
	session.Kernel
	conn net.Conn
}

// Dial implements session.Network.
func (t through) Dial(context.Context, string) (net.Conn, error) { return t.conn, nil }

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
