package main

import (
	"net/netip"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func TestCollHandles(t *testing.T) {
	made := func(last byte, guid uint64) (collHandle, []byte) {
		h := collHandle{
			at: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, last}), 5000+uint16(last)), key: 1<<63 | 5, guid: guid,
		}
		b := make([]byte, 128)
		for i := range b {
			b[i] = 0xee
		}
		h.put(b)
		return h, b
	}
	first, a := made(1, 7)
	_, same := made(2, 7)
	_, other := made(3, 8)
	read := func(handles ...[]byte) (collHandle, bool, error) {
		var all []unsafe.Pointer
		for _, h := range handles {
			all = append(all, unsafe.Pointer(unsafe.SliceData(h)))
		}
		return readCollHandles(all)
	}
	for _, at := range []string{"10.0.0.1:5000", "[fd00::1]:65535", "[fe80::1]:1"} {
		want, got := collHandle{at: netip.MustParseAddrPort(at), key: 5, guid: 6}, collHandle{}
		b := make([]byte, 128)
		want.put(b)
		require.True(t, got.read(b))
		require.Equal(t, want, got)
	}
	for _, c := range []struct {
		handles [][]byte
		oneHost bool
	}{
		{[][]byte{a}, true}, {[][]byte{a, same}, true}, {[][]byte{a, same, other}, false}, {[][]byte{a, nil}, false},
	} {
		got, oneHost, err := read(c.handles...)
		require.NoError(t, err)
		require.Equal(t, first, got)
		require.Equal(t, c.oneHost, oneHost)
	}
	for i := range collChecksum + 4 {
		bad := append([]byte{}, a...)
		bad[i] ^= 4
		_, _, err := read(bad, same)
		require.ErrorContains(t, err, "the handle of rank 0 is NULL, garbled", "byte %d", i)
		_, oneHost, err := read(a, bad)
		require.NoError(t, err)
		require.False(t, oneHost, "what cannot be read is not on this host")
	}
	_, _, err := read(nil, same)
	require.ErrorContains(t, err, "the handle of rank 0 is NULL")
}

func TestGroupInterface(t *testing.T) {
	require.Equal(t, "eth1", groupInterface("", "eth1", false), "the device, not the default route")
	require.Empty(t, groupInterface("", "eth1", true), "shared memory or loopback")
	require.Equal(t, "lo", groupInterface("lo", "lo", true))
	require.Equal(t, "eth1", groupInterface("eth2", "eth1", false), "NCCL's device is an older one")
}
