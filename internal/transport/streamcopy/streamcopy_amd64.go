package streamcopy

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

var haveAVX2 = cpu.X86.HasAVX2

// copyAVX2 copies n bytes past the cache. dst is a multiple of 32, n a
// multiple of 128 and not 0.
//
//go:noescape
func copyAVX2(dst, src *byte, n int)

// line is the length of a cache line.
const line = 64

// Copy copies src to dst, which is as long, without reading dst's lines into
// the cache first.
func Copy(dst, src []byte) {
	if !haveAVX2 {
		copy(dst, src)
		return
	}
	n := copy(dst, src[:min(len(src), -int(uintptr(unsafe.Pointer(unsafe.SliceData(dst))))&(line-1))])
	dst, src = dst[n:], src[n:]
	if n = len(src) &^ 127; n > 0 {
		copyAVX2(&dst[0], &src[0], n)
	}
	copy(dst[n:], src[n:])
}
