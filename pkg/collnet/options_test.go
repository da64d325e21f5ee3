package collnet

import (
	"bytes"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
)

// TestZeroOptions: they are the defaults, and the environment has no say.
func TestZeroOptions(t *testing.T) {
	t.Setenv("MCAST_TIMEOUT", "7s")
	t.Setenv("MCAST_CHUNK", "4096")
	s, err := (&Options{}).settings()
	require.NoError(t, err)
	require.Equal(t, config.Default(), s)
}

// TestFromEnv: fields have the values of the environment, a changed field overrides it, the zero
// value is the default again, and variables without a field count.
func TestFromEnv(t *testing.T) {
	for name, value := range map[string]string{
		"MCAST_FABRIC": "udp", "MCAST_IFACE": "eth7", "MCAST_GROUP": "239.1.2.3", "MCAST_PORT": "5000",
		"MCAST_SWITCH": "a:1,b:2",
		"MCAST_SECRET": "not-secret-since-it-is-here", "MCAST_TIMEOUT": "7s", "MCAST_JOIN_TIMEOUT": "8s",
		"MCAST_CLASS": "background",
		"MCAST_CHUNK": "4096", "MCAST_LOG": "debug", "MCAST_ENCRYPT": "1",
	} {
		t.Setenv(name, value)
	}
	o, err := FromEnv()
	require.NoError(t, err)
	asked, err := config.FromEnviron()
	require.NoError(t, err)
	require.Equal(t, Options{
		Fabric: UDP, Interface: "eth7", MulticastGroup: netip.MustParseAddr("239.1.2.3"), Port: 5000,
		Switches: []string{"a:1", "b:2"},
		Secret:   "not-secret-since-it-is-here", Encrypt: true, Timeout: 7 * time.Second, JoinTimeout: 8 * time.Second,
		Background: true, environment: &asked,
	}, o)
	s, err := o.settings()
	require.NoError(t, err)
	require.Equal(t, asked, s)

	o.Timeout, o.Interface, o.Background, o.Encrypt, o.Switches = 0, "", false, false, []string{"c:3"}
	s, err = o.settings()
	require.NoError(t, err)
	require.Equal(t, 30*time.Second, s.Timeout)
	require.Empty(t, s.Interface)
	require.Equal(t, "foreground", s.Class)
	require.False(t, s.Encrypt)
	require.Equal(t, "c:3", s.Switch)
	require.Equal(t, 4096, s.Chunk)
}

// TestBadEnvironment: every bad variable is named, a misspelt one is a warning.
func TestBadEnvironment(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	t.Setenv("MCAST_TIMEOOT", "7s")
	_, err := FromEnv()
	require.NoError(t, err)
	require.Contains(t, log.String(), "did you mean MCAST_TIMEOUT?")

	t.Setenv("MCAST_TIMEOUT", "soon")
	t.Setenv("MCAST_TTL", "-1")
	_, err = FromEnv()
	var bad *ArgumentError
	require.ErrorAs(t, err, &bad)
	require.ErrorContains(t, err, `MCAST_TIMEOUT="soon" is not allowed: want a duration from 100ms to 1h`)
	require.ErrorContains(t, err, "MCAST_TTL")

	log.Reset()
	t.Setenv("MCAST_LOG", "error")
	_, err = FromEnv()
	require.Error(t, err)
	require.Empty(t, log.String())
}

func TestBadOptions(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Fabric: "tcp"}, `Options.Fabric: "tcp" is not allowed: want one of auto, udp, shm`},
		{Options{Encrypt: true}, "Options: MCAST_ENCRYPT=1 without MCAST_SECRET"},
		{Options{Interface: "a b"}, `Options.Interface: "a b" is not allowed: want empty`},
		{Options{MulticastGroup: netip.MustParseAddr("10.0.0.1")},
			`Options.MulticastGroup: "10.0.0.1" is not allowed: want empty (derived`},
		{Options{Port: 80},
			`Options.Port: "80" is not allowed: want 0 (derived from the job) or a whole number from 1024 to 65535`},
		{Options{Switches: []string{"a:1", "b"}}, `Options.Switches: "a:1,b" is not allowed`},
		{Options{
			Secret: "short",
		}, `Options.Secret: "..." is not allowed: want empty (everybody on the network is taken for a rank) or 22 to 256 characters`},
		{Options{Secret: "store"}, `Options: MCAST_SECRET=store is for process groups of torch_mcast`},
		{Options{Timeout: time.Millisecond}, `Options.Timeout: "1ms" is not allowed: want a duration from 100ms to 1h`},
		{Options{Timeout: -time.Second}, `Options.Timeout: "-1s" is not allowed`},
		{Options{JoinTimeout: time.Hour * 25},
			`Options.JoinTimeout: "25h0m0s" is not allowed: want a duration from 100ms to 24h`},
	} {
		_, err := Listen(0, 1, c.o)
		var bad *ArgumentError
		require.ErrorAs(t, err, &bad)
		require.True(t, strings.HasPrefix(err.Error(), c.want), "%v\nwant %s", err, c.want)
	}
	// Allowed each, not together.
	t.Setenv("MCAST_SUBGROUPS", "2")
	o, err := FromEnv()
	require.NoError(t, err)
	o.MulticastGroup = netip.MustParseAddr("239.255.255.255")
	_, err = Listen(0, 1, o)
	assert.ErrorContains(t, err, "Options: MCAST_GROUP=239.255.255.255 with MCAST_SUBGROUPS=2 is not allowed")
}

func TestBadPlace(t *testing.T) {
	for _, c := range []struct {
		addr       string
		rank, size int
		want       string
	}{
		{"host0:29500", 2, 2, "rank 2 is not in a group of 2; allowed are 0 to 1"},
		{"host0:29500", -1, 2, "rank -1 is not in a group of 2"},
		{"host0:29500", 0, 0, "group of 0 ranks; allowed are 1 to 32768"},
		{"host0", 0, 2, `the address "host0" is not allowed: want host:port with a port from 1 to 65535`},
		{"host0:0", 1, 2, `the address "host0:0" is not allowed`},
		{"host0:http", 1, 2, `the address "host0:http" is not allowed`},
		{":29500", 1, 2, `the address ":29500" is not allowed`},
	} {
		_, err := Join(t.Context(), c.addr, c.rank, c.size, Options{})
		var bad *ArgumentError
		require.ErrorAs(t, err, &bad)
		require.ErrorContains(t, err, c.want)
	}
	err := InProcess(t.Context(), 0, Options{}, func(*Group) error { return nil })
	require.ErrorContains(t, err, "allowed are 1 to 32768")
}
