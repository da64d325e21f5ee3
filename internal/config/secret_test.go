package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/coredump/coredumptest"
)

func TestErrorsKeepTheSecret(t *testing.T) {
	for _, bad := range []string{"hunter2-hunter2-hunte", "with a space", "control\x01character",
		strings.Repeat("x", 257)} {
		_, err := Load(nil, map[string]string{"MCAST_SECRET": bad})
		require.ErrorContains(t, err, "MCAST_SECRET")
		require.ErrorContains(t, err, allowed(t, "MCAST_SECRET"))
		require.NotContains(t, err.Error(), bad)
	}
	s, err := Load(nil, map[string]string{"MCAST_SECRET": "correct-horse-battery-staple"})
	require.NoError(t, err)
	require.Equal(t, "correct-horse-battery-staple", s.Secret)
}

func TestSecretFile(t *testing.T) {
	const secret = "correct-horse-battery-staple"
	folder := t.TempDir()
	file := filepath.Join(folder, "job")
	load := func(text, name string, more map[string]string) (Settings, error) {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		values := map[string]string{"MCAST_SECRET_FILE": name, "CREDENTIALS_DIRECTORY": folder}
		for k, v := range more {
			values[k] = v
		}
		return Load(func(name string) (string, bool) { v, ok := values[name]; return v, ok }, nil)
	}
	for _, text := range []string{secret, secret + "\n", secret + "\r\nand more\n"} {
		for _, name := range []string{file, "job"} {
			s, err := load(text, name, nil)
			require.NoError(t, err)
			require.Equal(t, secret, s.Secret)
		}
	}
	for want, c := range map[string]struct {
		text, name string
		more       map[string]string
	}{
		"a secret of 5 bytes":         {"short\n" + secret, file, nil},
		"a secret of 0 bytes":         {"", file, nil},
		"a secret of 258 bytes":       {strings.Repeat("x", 1<<20), file, nil},
		"no such file":                {secret, file + "0", nil},
		"want the path of a file":     {secret, "../job", nil},
		"a credential that systemd":   {secret, "job", map[string]string{"CREDENTIALS_DIRECTORY": ""}},
		"MCAST_SECRET is set as well": {secret, file, map[string]string{"MCAST_SECRET": secret}},
	} {
		_, err := load(c.text, c.name, c.more)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "MCAST_SECRET_FILE=")
		require.NotContains(t, err.Error(), secret)
	}
}

// TestInStore: who has no store is told so, and is given the other settings; who has one puts the secret in its place.
func TestInStore(t *testing.T) {
	vars := map[string]string{"MCAST_SECRET": "store", "MCAST_ENCRYPT": "1", "MCAST_TTL": "7"}
	s, err := Load(from(vars), nil)
	require.ErrorIs(t, err, ErrInStore)
	require.ErrorContains(t, err, "want 22 to 256 characters")
	require.Equal(t, 7, s.TTL)
	require.ErrorIs(t, s.Check(), ErrInStore)
	_, err = SecretOf(from(vars))
	require.ErrorIs(t, err, ErrInStore)

	const secret = "correct-horse-battery-staple"
	s, err = Load(from(vars), map[string]string{"MCAST_SECRET": secret})
	require.NoError(t, err)
	require.Equal(t, secret, s.Secret)
	vars["MCAST_TTL"] = "x"
	s, err = Load(from(vars), nil)
	require.ErrorContains(t, err, "MCAST_TTL")
	require.NotErrorIs(t, err, ErrInStore)
	require.Zero(t, s)
	require.Error(t, CheckSecret(InStore), "no secret is mistaken for it")
}

func TestSecretIsInNoCore(t *testing.T) {
	coredumptest.By(t, func() {
		_, err := Load(nil, map[string]string{"MCAST_SECRET": "correct-horse-battery-staple"})
		require.NoError(t, err)
	})
	last := coredumptest.Grow(t)
	Default()
	require.False(t, coredumptest.Omitted(t, last), "there is none")
}
