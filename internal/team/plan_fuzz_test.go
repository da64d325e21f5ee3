package team

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
)

// FuzzPlan has a store hand out anything for the blobs of two ranks. It is refused with a reason,
// or gives a plan that both come to alike and that what follows can work with.
func FuzzPlan(f *testing.F) {
	settings := config.Default()
	good := func(rank int) Blob {
		return Blob{
			Version: spokenVersion, Rank: rank, Size: 2, Host: "a/1", Address: "10.0.0.1", Port: 7000, Key: "1", Job: "1",
			RcvBuf: 212992, Settings: settings.Agreed(),
		}
	}
	for _, change := range []func(*Blob){
		func(*Blob) {},
		func(b *Blob) { b.Host = "b/2" },
		func(b *Blob) { b.RcvBuf = -1 },
		func(b *Blob) { b.RcvBuf, b.Switches = -1, -1 },
		func(b *Blob) { b.Host, b.Address = "b/2", "fe80::1%eth0" },
		func(b *Blob) { b.Host, b.Address, b.Address6 = "b/2", "", "fe80::1%eth0" },
		func(b *Blob) { b.Host, b.Address6 = "b/2", "fd00::1" },
		func(b *Blob) { b.Host, b.Address6 = "b/2", "::ffff:10.0.0.1" },
		func(b *Blob) { b.Host, b.Address = "b/2", "127.0.0.1" },
		func(b *Blob) { b.Settings = "MCAST_CHUNK=512" },
		func(b *Blob) { b.Settings = "MCAST_CHUNK MCAST_CHUNK=0" },
		func(b *Blob) { b.Switches = 1 },
		func(b *Blob) { b.Rank, b.Port, b.Key, b.Job = 7, 1<<20, "key", "0" },
	} {
		b := [2]Blob{good(0), good(1)}
		change(&b[1])
		var texts [2][]byte
		for r := range b {
			text, err := json.Marshal(b[r])
			require.NoError(f, err)
			texts[r] = text
		}
		f.Add(texts[0], texts[1], "auto")
		f.Add(texts[0], texts[1], "udp")
	}
	f.Fuzz(func(t *testing.T, first, second []byte, fabric string) {
		var both [2]*Plan
		var errs [2]error
		for rank := range both {
			o := Self{Rank: rank, Size: 2, Settings: settings, Version: spokenVersion}
			o.Settings.Fabric = fabric
			both[rank], errs[rank] = New(o, [][]byte{first, second})
		}
		require.Equal(t, errs[0] == nil, errs[1] == nil)
		if errs[0] != nil {
			require.NotEmpty(t, errs[0].Error())
			return
		}
		a, b := both[0], both[1]
		require.Equal(t, 1-a.Column.Own, b.Column.Own)
		b.Rank, b.Node, b.Column = a.Rank, a.Node, a.Column
		require.Equal(t, a, b)
		require.Len(t, a.Keys, 2)
		require.Len(t, a.Addrs, 2)
		for _, at := range a.Addrs {
			require.Equal(t, a.Addrs[0].Addr().Is4(), at.Addr().Is4())
			require.NotZero(t, at.Port())
		}
		require.GreaterOrEqual(t, a.RcvBuf, 0)
		require.GreaterOrEqual(t, a.Switches, 0)
		require.NotZero(t, a.Job)
		group, port := a.MulticastGroup()
		require.True(t, group.IsMulticast())
		require.Equal(t, a.Addrs[0].Addr().Is4(), group.Is4())
		require.NotZero(t, port)
		require.Positive(t, a.SendersAtOnce(1000))
	})
}
