package examine

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/doctor"
	"github.com/torch-mcast/torch-mcast/internal/transport/identity"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// TestThisHost asserts that there is a report of any host that runs the tests, and for any user.
func TestThisHost(t *testing.T) {
	f := Host(
		t.Context(),
		Options{Environ: []string{"MCAST_IFACE=lo", "MCAST_SECRET=hunter2hunter2", "HOME=/root"}},
	)
	assert.NotEmpty(t, f.Kernel.Release)
	assert.True(t, f.Kernel.Memfd)
	assert.Equal(t, doctor.Choice{Name: "lo", Address: "127.0.0.1", Why: doctor.ByName}, f.Chosen)
	assert.Positive(t, f.CPU.Count)
	assert.Positive(t, f.Memory.Available)
	assert.Positive(t, f.Net.RmemMax)
	for _, test := range f.Tests {
		assert.Empty(t, test.Error, test.Name)
	}
	assert.Len(t, f.Tests, 5)

	r := doctor.NewReport(f)
	var text, object bytes.Buffer
	require.NoError(t, r.Write(&text))
	require.NoError(t, r.WriteJSON(&object))
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	assert.Equal(t, f.Host+": "+r.Verdict, lines[len(lines)-1])
	assert.Contains(t, text.String(), "lo, as MCAST_IFACE names it: 127.0.0.1")
	assert.NotContains(t, text.String()+object.String(), "hunter2", "a secret is not shown")
	assert.NotContains(t, object.String(), "/root")
	var got doctor.Report
	require.NoError(t, json.Unmarshal(object.Bytes(), &got))
	assert.Equal(t, r.Verdict, got.Verdict)
}

// TestANamespaceIsSeen as it is: its links, routes, IGMP and firewall.
func TestANamespaceIsSeen(t *testing.T) {
	p := systest.Cable(t, 1500)[0]
	p.IP(t, "route add default via 10.9.0.2")
	var f doctor.Facts
	p.Do(func() { f = Host(t.Context(), Options{}) })
	assert.Equal(t, doctor.Choice{Name: "v0", Address: "10.9.0.1", Why: doctor.ByRoute}, f.Chosen)
	assert.Equal(t, "v0", f.MulticastRoute)
	assert.Equal(t, "V3", f.IGMP.Version)
	require.NotNil(t, f.ChosenLink())
	assert.Equal(t, []string{"10.9.0.1/24"}, f.ChosenLink().IPv4)
	assert.Equal(t, 1500, f.ChosenLink().MTU)
	assert.True(t, f.ChosenLink().Up && f.ChosenLink().Carrier && f.ChosenLink().Multicast)
	assert.True(t, f.Firewall.Seen)
	assert.Len(t, f.Tests, 5)
}

func TestVariables(t *testing.T) {
	f := Host(
		t.Context(),
		Options{Environ: []string{"MCAST_IFACE=lo", "MCAST_IFCAE=eth0", "MCAST_FABRIC=tcp"}},
	)
	found := doctor.Diagnose(f)
	assert.Equal(t, doctor.Fault, found[0].Severity)
	assert.Contains(t, found[0].What, `MCAST_FABRIC="tcp" is not allowed`)
	assert.Contains(t, names(found, doctor.Warning), "setting-unknown")
	assert.Equal(t, "lo", f.Chosen.Name, "what is right counts all the same")
}

// TestSecret: a host tells its secret apart from others without giving it away.
func TestSecret(t *testing.T) {
	const secret = "correct-horse-battery-staple"
	f := Host(t.Context(), Options{Environ: []string{"MCAST_IFACE=lo", "MCAST_SECRET=" + secret}})
	id, err := identity.New(secret)
	require.NoError(t, err)
	name, err := id.Name()
	require.NoError(t, err)
	assert.Equal(t, name, f.Settings.Secret)
	r := doctor.NewReport(f)
	var object bytes.Buffer
	require.NoError(t, r.WriteJSON(&object))
	assert.NotContains(t, object.String(), secret)
	assert.Contains(t, object.String(), name)
}

// TestSecretInStore: that hosts are to take it from torch's store is nothing bad.
func TestSecretInStore(t *testing.T) {
	f := Host(t.Context(), Options{Environ: []string{"MCAST_IFACE=lo", "MCAST_SECRET=store", "MCAST_ENCRYPT=1"}})
	assert.Empty(t, f.Settings.Bad)
	assert.Equal(t, "store", f.Settings.Secret)
	assert.Equal(t, "(set)", f.Settings.Set["MCAST_SECRET"])
}

// TestMisspelledSecret: the value of a variable that we do not know is not told.
func TestMisspelledSecret(t *testing.T) {
	f := Host(t.Context(), Options{Environ: []string{"MCAST_IFACE=lo", "MCAST_SECERT=correct-horse-battery-staple"}})
	assert.Equal(t, map[string]string{"MCAST_IFACE": "lo", "MCAST_SECERT": "(set)"}, f.Settings.Set)
	var object bytes.Buffer
	r := doctor.NewReport(f)
	require.NoError(t, r.WriteJSON(&object))
	assert.NotContains(t, object.String(), "correct-horse")
}

// TestOverlay has what a test puts below a folder count before what the host has.
func TestOverlay(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "proc/sys/net/core"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "proc/sys/net/core/rmem_max"), []byte("4711\n"), 0o600))
	f := Host(t.Context(), Options{Environ: []string{"MCAST_IFACE=lo"}, Root: folder})
	assert.Equal(t, 4711, f.Net.RmemMax)
	assert.Positive(t, f.Net.WmemMax)
	assert.Empty(t, f.Kernel.Blocked)
	assert.NotEmpty(t, f.CPU.Set)
}
