package group

import "unsafe"

// overlaps reports whether two buffers share a byte.
func overlaps(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	p, q := uintptr(unsafe.Pointer(unsafe.SliceData(a))), uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return p < q+uintptr(len(b)) && q < p+uintptr(len(a))
}

// nonNil returns an empty slice for nil: a nil Send means that there is no own shard.
func nonNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
