package main

import (
	"encoding/binary"
	"hash/crc32"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
)

// FuzzCollHandle reads handles of any content: with a right checksum, or they would all be refused
// for that.
func FuzzCollHandle(f *testing.F) {
	const size = 128
	good := make([]byte, size)
	collHandle{at: netip.MustParseAddrPort("10.0.0.1:5000"), key: 1 << 63, guid: 7}.put(good)
	f.Add(good)
	f.Fuzz(func(t *testing.T, b []byte) {
		h := make([]byte, size)
		copy(h, b)
		binary.BigEndian.PutUint32(h[collChecksum:], crc32.ChecksumIEEE(h[:collChecksum]))
		var c, again collHandle
		if !c.read(h) {
			return
		}
		c.put(h)
		require.True(t, again.read(h))
		require.Equal(t, c, again)
	})
}

// FuzzCollBlobs opens what ranks have exchanged: any text in place of a rank's.
func FuzzCollBlobs(f *testing.F) {
	l := collListener{settings: config.Default()}
	f.Add([]byte(l.tuning() + "\n" + offer{}.String() + "\n{}"))
	f.Add([]byte(l.tuning()))
	f.Add([]byte(failedBlob + "no interface"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		blobs := [][]byte{[]byte(l.tuning() + "\n" + offer{}.String() + "\nmine"), b}
		if _, err := l.open(blobs); err != nil {
			require.Contains(t, err.Error(), "rank 1")
			return
		}
		require.Equal(t, "mine", string(blobs[0]))
		require.LessOrEqual(t, len(blobs[1]), len(b))
	})
}
