//go:build !amd64

package shm

func copyUncached(dst, src []byte) { copy(dst, src) }
