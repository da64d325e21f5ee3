package batch

import "fmt"

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

// Check returns an error for a number that is no step.
func (o Offload) Check() error {
	if o > OffloadSingle {
		return fmt.Errorf("%v: want auto, gso, batch or single", o)
	}
	return nil
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
