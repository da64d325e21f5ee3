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
	read := func(rank int, handles ...[]byte) (meeting, error) {
		var all []unsafe.Pointer
		for _, h := range handles {
			all = append(all, unsafe.Pointer(unsafe.SliceData(h)))
		}
		return readCollHandles(all, rank)
	}
	for _, at := range []string{"10.0.0.1:5000", "[fd00::1]:65535", "[fe80::1]:1"} {
		want, got := collHandle{at: netip.MustParseAddrPort(at), key: 5, guid: 6}, collHandle{}
		b := make([]byte, 128)
		want.put(b)
		require.True(t, got.read(b))
		require.Equal(t, want, got)
	}
	members := map[uint64]bool{}
	for _, c := range []struct {
		handles [][]byte
		oneHost bool
	}{
		{[][]byte{a}, true}, {[][]byte{a, same}, true}, {[][]byte{a, same, other}, false}, {[][]byte{a, nil}, false},
	} {
		got, err := read(0, c.handles...)
		require.NoError(t, err)
		require.Equal(t, first, got.first)
		require.Equal(t, c.oneHost, got.oneHost)
		require.False(t, members[got.members], "other ranks")
		members[got.members] = true
		again, err := read(0, c.handles...)
		require.NoError(t, err)
		require.Equal(t, got.members, again.members)
		neighbour, err := read(1, c.handles...)
		require.NoError(t, err)
		require.NotEqual(t, got.members, neighbour.members, "ranks of one process")
	}
	for i := range collChecksum + 4 {
		bad := append([]byte{}, a...)
		bad[i] ^= 4
		_, err := read(0, bad, same)
		require.ErrorContains(t, err, "the handle of rank 0 is NULL, garbled", "byte %d", i)
		got, err := read(0, a, bad)
		require.NoError(t, err)
		require.False(t, got.oneHost, "what cannot be read is not on this host")
	}
	_, err := read(0, nil, same)
	require.ErrorContains(t, err, "the handle of rank 0 is NULL")
}

func TestGroupInterface(t *testing.T) {
	require.Equal(t, "eth1", groupInterface("", "eth1", false), "the device, not the default route")
	require.Empty(t, groupInterface("", "eth1", true), "shared memory or loopback")
	require.Equal(t, "lo", groupInterface("lo", "lo", true))
	require.Equal(t, "eth1", groupInterface("eth2", "eth1", false), "NCCL's device is an older one")
}
