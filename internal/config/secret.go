package config

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode"
)

// Bounds of the length of a secret, in bytes. Fewer letters and digits than minSecret hold less than 128 bits, and who
// has a digest of the secret, which ranks tell each other and the switch, could try them all.
const (
	minSecret = 22
	maxSecret = 256
)

// InStore is the value of MCAST_SECRET by which the ranks of a process group share a secret through torch's store. It
// is shorter than a secret may be.
const InStore = "store"

// ErrInStore says that there is no such store: only torch_mcast has one at hand, and puts the secret in place of
// InStore.
var ErrInStore = Mistakef("MCAST_SECRET=store is for process groups of torch_mcast, which share a secret through " +
	"torch's store, " +
	"and there is none here: want 22 to 256 characters without white space, such as `mcast secret` makes, or " +
	"MCAST_SECRET_FILE")

// CheckSecret returns an error if a secret, of a rank or of the switch, is too
// short or too long; or is not printable or has white space, so that it would not survive
// environments and files with one a line. The error does not show the secret.
func CheckSecret(text string) error {
	if len(text) < minSecret || len(text) > maxSecret {
		return fmt.Errorf("a secret of %d bytes; want at least %d, at most %d", len(text), minSecret, maxSecret)
	}
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsGraphic(r) || unicode.IsSpace(r) }) {
		return errors.New("a secret with white space or control characters; want none")
	}
	return nil
}

// SecretOf returns the secret of MCAST_SECRET or MCAST_SECRET_FILE, empty if neither is set: for the switch, which
// knows no other variable. The error does not show it.
func SecretOf(lookup func(string) (string, bool)) (string, error) {
	var s Settings
	s.Secret, _ = lookup("MCAST_SECRET")
	s.SecretFile, _ = lookup("MCAST_SECRET_FILE")
	if s.SecretFile != "" {
		if err := s.readSecret(lookup); err != nil {
			return "", fmt.Errorf("MCAST_SECRET_FILE=%q: %w", s.SecretFile, err)
		}
		return s.Secret, nil
	}
	switch s.Secret {
	case "":
		return "", nil
	case InStore:
		return "", ErrInStore
	}
	if err := CheckSecret(s.Secret); err != nil {
		return "", Mistakef("MCAST_SECRET: %w", err)
	}
	return s.Secret, nil
}

// readSecret takes the secret from SecretFile.
func (s *Settings) readSecret(lookup func(string) (string, bool)) error {
	if s.Secret != "" {
		return errors.New("MCAST_SECRET is set as well; want one of them")
	}
	path := s.SecretFile
	if !filepath.IsAbs(path) {
		folder := ""
		if lookup != nil {
			folder, _ = lookup("CREDENTIALS_DIRECTORY")
		}
		if folder == "" || !filepath.IsLocal(path) {
			return errors.New("want the path of a file from / on, or the name of a credential that systemd has given this " +
				"process (LoadCredential=)")
		}
		path = filepath.Join(folder, path)
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was only read
	line, err := bufio.NewReader(io.LimitReader(f, maxSecret+2)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	line = strings.TrimRight(line, "\r\n")
	if err := CheckSecret(line); err != nil {
		return err
	}
	s.Secret = line
	return nil
}
