//go:build !linux || !(amd64 || arm64)

package sys

// The structs of msg.go, and much else here, have the layout of 64-bit Linux: the compiler stops
// with this name where the library does not run.
var _ = torch_mcast_needs_Linux_on_amd64_or_arm64
