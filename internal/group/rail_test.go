package group

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// sentBy returns how many bytes a namespace's interface has sent.
func sentBy(t *testing.T, n *systest.Namespace, name string) (bytes int) {
	t.Helper()
	n.Do(func() {
		text, err := os.ReadFile("/proc/thread-self/net/dev")
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			if of, counters, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(of) == name {
				bytes, err = strconv.Atoi(strings.Fields(counters)[8])
				require.NoError(t, err)
			}
		}
	})
	return bytes
}

// TestRails: multicast takes two cables by turns.
func TestRails(t *testing.T) {
	waits(t)
	for _, family := range []string{"4", "6"} {
		t.Run("IPv"+family, func(t *testing.T) {
			role := hostRole{Size: 2, Family: family, Timeout: systest.Limit, Interface: "v%[1]d,w%[1]d"}
			p := startRoles(t, role, func(h [2]*systest.Namespace) { systest.PlugAnother(t, h, 9000) })
			for _, r := range p.reports(t) {
				require.Empty(t, r.Error)
				require.Empty(t, r.Info.Notes)
				require.Len(t, r.Info.Rails, 1)
			}
			before := sentBy(t, p.hosts[0], "w0")
			for _, r := range p.run(t) {
				require.Empty(t, r.Error)
				require.Equal(t, "multicast", r.Info.Allgather)
			}
			half := 1 << 19 // of its shard, but for a few chunks
			require.Greater(t, sentBy(t, p.hosts[0], "w0")-before, half*9/10)
			require.Less(t, sentBy(t, p.hosts[0], "w0")-before, half*12/10)
		})
	}
}

// TestRailWithoutMulticast: that one of two cables carries none is found at the join.
func TestRailWithoutMulticast(t *testing.T) {
	waits(t)
	role := hostRole{Size: 2, Family: "4", Timeout: systest.Limit, Interface: "v%[1]d,w%[1]d"}
	p := startRoles(t, role, func(h [2]*systest.Namespace) {
		systest.PlugAnother(t, h, 9000)
		h[1].DropMulticastFrom(t, "w1")
	})
	for _, r := range p.reports(t) {
		require.Empty(t, r.Error)
		require.Equal(t, [][2]int{{0, 1}}, r.Info.Unheard)
		require.Equal(t, "unicast", r.Info.Allgather)
	}
	for _, r := range p.run(t) {
		require.Empty(t, r.Error)
	}
}

// TestAsManyRails: a rank that names fewer interfaces than others is named.
func TestAsManyRails(t *testing.T) {
	settings := config.Default()
	settings.Fabric = "udp"
	var blobs [][]byte
	for r, rails := range []string{`[["10.1.0.1"]]`, `[]`} {
		var b team.Blob
		require.NoError(t, json.Unmarshal([]byte(`{"l":`+rails+`}`), &b))
		b.Version, b.Rank, b.Size, b.Host, b.Address, b.Port, b.Key, b.Job = protocolVersion, r, 2, "a/1", "10.0.0.1", 7000,
			"1", "1"
		b.Settings = settings.Agreed()
		text, err := json.Marshal(b)
		require.NoError(t, err)
		blobs = append(blobs, text)
	}
	_, err := team.New(team.Self{Rank: 1, Size: 2, Settings: settings, Version: protocolVersion}, blobs)
	require.ErrorContains(t, err,
		"MCAST_IFACE names 2 interfaces at rank 0 and one interface at most at rank 1; name as many at all ranks")
}
