package datagram

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

// Offload says how many datagrams cross the kernel in one call.
type Offload uint8

// The steps, from the best to the simplest.
const (
	OffloadAuto   Offload = iota // the best step that the kernel has
	OffloadGSO                   // many datagrams in one buffer (UDP_SEGMENT, UDP_GRO), several buffers a call
	OffloadBatch                 // several datagrams a call (sendmmsg, recvmmsg)
	OffloadSingle                // one datagram a call
)

var offloadNames = [...]string{OffloadAuto: "auto", OffloadGSO: "gso", OffloadBatch: "batch", OffloadSingle: "single"}

// String returns the name that MCAST_OFFLOAD takes.
func (o Offload) String() string {
	if int(o) < len(offloadNames) {
		return offloadNames[o]
	}
	return fmt.Sprintf("offload(%d)", uint8(o))
}

// ParseOffload is the inverse of Offload.String.
func ParseOffload(name string) (Offload, error) {
	for i, n := range offloadNames {
		if n == name {
			return Offload(i), nil
		}
	}
	return 0, fmt.Errorf("offload %q is unknown: want auto, gso, batch or single", name)
}

// kernel is what the kernel does for a socket.
type kernel struct {
	segment bool // UDP_SEGMENT, Linux 4.18: one buffer becomes many datagrams
	merge   bool // UDP_GRO, Linux 5.0: many datagrams become one buffer
	batch   bool // sendmmsg and recvmmsg, Linux 3.0; sandboxes may lack them
}

// probe asks a socket what the kernel has, and turns nothing on.
func probe(fd int) kernel {
	return kernel{
		segment: unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT, 0) == nil,
		merge:   unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO, 0) == nil,
		batch:   sys.HasBatches(fd),
	}
}

// limit is what remains of it at a step, or an error if the step needs more.
func (k kernel) limit(want Offload) (kernel, error) {
	missing := func(what string) (kernel, error) {
		return kernel{}, fmt.Errorf("%w: datagram: offload %v: no %s", fabric.ErrUnavailable, want, what)
	}
	switch {
	case want == OffloadGSO && !k.segment:
		return missing("UDP_SEGMENT before Linux 4.18")
	case want == OffloadGSO && !k.merge:
		return missing("UDP_GRO before Linux 5.0")
	case (want == OffloadGSO || want == OffloadBatch) && !k.batch:
		return missing("sendmmsg and recvmmsg here")
	case want == OffloadBatch:
		return kernel{batch: true}, nil
	case want == OffloadSingle:
		return kernel{}, nil
	}
	return k, nil
}
