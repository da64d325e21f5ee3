package session

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/identity"
	"github.com/torch-mcast/torch-mcast/internal/transport/seal"
)

// Secret admits members to a switch. It must never be logged.
type Secret struct {
	Name string // for logs; may be empty
	Text string
}

// Secrets are the secrets that a switch admits; each may belong to another tenant.
type Secrets []Secret

// Check returns an error if a secret is not allowed; see config.CheckSecret. The error does not show it.
func (s Secret) Check() error {
	return config.CheckSecret(s.Text)
}

// ReadSecrets reads one secret a line, with an optional name before it. Empty
// lines and lines that begin with # do not count. They are as Check wants them.
func ReadSecrets(r io.Reader) (Secrets, error) {
	var all Secrets
	lines := bufio.NewScanner(r)
	for number := 1; lines.Scan(); number++ {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if len(words) > 2 {
			return nil, fmt.Errorf("line %d has %d words; want a secret, or a name and a secret", number, len(words))
		}
		s := Secret{Text: words[len(words)-1]}
		if len(words) == 2 {
			s.Name = words[0]
		}
		if err := s.Check(); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if slices.ContainsFunc(all, func(other Secret) bool { return other.Text == s.Text }) {
			return nil, fmt.Errorf("line %d: a secret that is there before; want one for each tenant", number)
		}
		all = append(all, s)
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no secret; want one a line, with an optional name before it")
	}
	return all, nil
}

// Ring holds the secrets by which a switch recognizes members, and proves itself to them. It is nil without secrets.
type Ring struct {
	secrets Secrets
	ring    *identity.Ring
}

// Ring returns the ring of some secrets. At most turns proofs keep a core busy at a time.
func (s Secrets) Ring(turns int) (*Ring, error) {
	if len(s) == 0 {
		return nil, nil
	}
	texts := make([]string, len(s))
	for i, secret := range s {
		texts[i] = secret.Text
	}
	ring, err := identity.NewRing(texts, turns)
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	return &Ring{s, ring}, nil
}

// keys are the secrets of a session's datagrams, by direction, as this end sees it.
type keys struct{ out, in []byte }

// head is the length of what precedes a payload in a datagram: header and, unless there are no keys, tag.
func (k *keys) head() int {
	if k == nil {
		return wire.SlotSize
	}
	return wire.SlotSize + seal.Tags.Size()
}

// follow ends a greeting: it returns the connection that both ends go on with, and the secrets of their datagrams.
func follow(g *identity.Greeting) (net.Conn, *keys, error) {
	var k keys
	var err error
	if k.out, k.in, err = g.Keys("slots", seal.KeySize); err != nil {
		return nil, nil, err
	}
	conn, err := g.Follow()
	return conn, &k, err
}
