package session

import (
	"bufio"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	"github.com/torch-mcast/torch-mcast/internal/config"
)

// Secret admits members to a node. It must never be logged.
type Secret struct {
	Name string // for logs; may be empty
	Text string
}

// Secrets are those that a node admits, each of which may belong to another tenant.
type Secrets []Secret

// Check returns what is wrong with a secret; see config.CheckSecret. The error does not show it.
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

func (s Secrets) find(key string) (Secret, bool) {
	for _, secret := range s {
		if secret.key() == key {
			return secret, true
		}
	}
	return Secret{}, false
}

// key names the secret without giving it away.
func (s Secret) key() string {
	digest := sha256.Sum256([]byte("mcast key id" + s.Text))
	return hex.EncodeToString(digest[:8])
}

const nonceSize = 32

func newNonce() []byte {
	nonce := make([]byte, nonceSize)
	_, _ = rand.Read(nonce) // never fails
	return nonce
}

// derive returns the key of a secret for one purpose in the session of two nonces.
func (s Secret) derive(purpose string, node, member []byte) ([]byte, error) {
	salt := append(append([]byte{}, node...), member...)
	key, err := hkdf.Key(sha256.New, []byte(s.Text), salt, "mcast "+purpose, 32)
	if err != nil {
		return nil, fmt.Errorf("session: derive the key of %s: %w", purpose, err)
	}
	return key, nil
}

// keys are those of a session, by direction.
type keys struct {
	framesUp, framesDown []byte // up: from the member to the node
	tagsUp, tagsDown     []byte
}

func (s Secret) keys(node, member []byte) (k keys, err error) {
	for purpose, key := range map[string]*[]byte{
		"frames to the node": &k.framesUp, "frames to the member": &k.framesDown,
		"tags to the node": &k.tagsUp, "tags to the member": &k.tagsDown,
	} {
		if *key, err = s.derive(purpose, node, member); err != nil {
			return keys{}, err
		}
	}
	return k, nil
}
