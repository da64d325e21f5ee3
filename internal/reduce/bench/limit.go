package main

import (
	"encoding/binary"
	"fmt"
	"runtime"
)

// way is one way to read sources and write a destination, of a size that is a
// multiple of 4096 bytes and aligned to a cache line, without computing.
type way struct {
	name string
	run  func(dst []byte, srcs [][]byte)
}

// touch reads and writes bytes from to to as a kernel that sums does: 8 vectors
// of every source, then those of dst.
type touch struct {
	name string
	run  func(dst []byte, srcs [][]byte, from, to int, scalar uint64)
}

// sweep reads, or writes, all of a slice.
type sweep struct {
	name string
	run  func([]byte)
}

// limits returns the ways to try: which is the fastest depends on the machine,
// the size and the number of sources.
func limits() []way {
	var ways []way
	for _, t := range touches() {
		ways = append(ways, way{t.name, func(dst []byte, srcs [][]byte) { t.run(dst, srcs, 0, len(dst), 0) }})
	}
	for _, r := range reads() {
		for _, w := range writes() {
			ways = append(
				ways,
				way{
					fmt.Sprintf("%s, %s, slice by slice", r.name, w.name),
					func(dst []byte, srcs [][]byte) { sweepAll(dst, srcs, len(dst), r, w) },
				},
				way{
					fmt.Sprintf("%s, %s, 4 KiB of each", r.name, w.name),
					func(dst []byte, srcs [][]byte) { sweepAll(dst, srcs, 4<<10, r, w) },
				},
			)
		}
	}
	return ways
}

// sweepAll reads a block of every source, then writes the same block of dst,
// and goes on with the next block.
func sweepAll(dst []byte, srcs [][]byte, block int, read, write sweep) {
	for from := 0; from < len(dst); from += block {
		for _, src := range srcs {
			read.run(src[from : from+block])
		}
		write.run(dst[from : from+block])
	}
}

// clearing writes as the Go runtime does.
var clearing = sweep{"clear", func(s []byte) { clear(s) }}

// words reads where there are no kernels.
var words = sweep{"read words", func(s []byte) {
	var bits uint64
	for ; len(s) >= 8; s = s[8:] {
		bits |= binary.NativeEndian.Uint64(s)
	}
	runtime.KeepAlive(bits)
}}
