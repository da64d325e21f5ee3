package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzLoad gives every variable any text. It is refused with its name, or understood the same way
// again.
func FuzzLoad(f *testing.F) {
	for i, text := range []string{"", "auto", "eth0", "239.1.2.3", "5000", "2s", "0.01", "64K", "1MiB", "[::1]:4000",
		"a:1,b:2", "0", "-1", "NaN", "1e9", "off", "correct-horse-battery-staple"} {
		for v := range table {
			if v%4 == i%4 || text == table[v].Default {
				f.Add(v, text)
			}
		}
	}
	f.Fuzz(func(t *testing.T, v int, text string) {
		name := table[uint(v)%uint(len(table))].Name
		s, err := Load(from(map[string]string{name: text}), nil)
		if err != nil {
			require.ErrorContains(t, err, name)
			return
		}
		again, err := Load(nil, map[string]string{name: text})
		require.NoError(t, err)
		require.Equal(t, s, again)
		for _, at := range s.Switches() {
			require.NotEmpty(t, at)
		}
	})
}

// FuzzBytes reads sizes: a valid size is the same after it is written and read again.
func FuzzBytes(f *testing.F) {
	for _, text := range []string{"0", "4096", "64K", "64KiB", "1m", "9223372036854775807", "8388607T", "-1", "1KB", "+1",
		" 1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := ParseBytes(text)
		if err != nil {
			return
		}
		require.GreaterOrEqual(t, n, 0)
		again, err := ParseBytes(FormatBytes(n))
		require.NoError(t, err)
		require.Equal(t, n, again)
	})
}

// FuzzUnknown takes any environment: what begins like a variable is one, or has a warning.
func FuzzUnknown(f *testing.F) {
	f.Add("MCAST_FABRIK=udp")
	f.Add("MCAST_=")
	f.Add("MCAST_\xff")
	f.Fuzz(func(t *testing.T, entry string) {
		name, _, _ := strings.Cut(entry, "=")
		require.Equal(t, strings.HasPrefix(name, "MCAST_") && !known(name), len(Unknown([]string{entry})) == 1)
	})
}
