package batch

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

// Kernel is what there is to move many datagrams in a call: in the running kernel, or, of that, what a
// socket uses.
type Kernel struct {
	Segment bool // UDP_SEGMENT: one buffer becomes many datagrams
	Merge   bool // UDP_GRO: many datagrams become one buffer
	Batch   bool // sendmmsg and recvmmsg: many buffers a call
}

// UnsupportedError says what the running kernel lacks. It is a fabric.ErrUnavailable.
type UnsupportedError struct {
	Feature string // "UDP_GRO"
	Since   string // the first Linux that has it, "5.0"
	Without string // how the fabric works without it, if it can
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("no %s here (Linux has it since %s; a sandbox may not)", e.Feature, e.Since)
}

// Is makes the error a fabric.ErrUnavailable.
func (e *UnsupportedError) Is(target error) bool { return target == fabric.ErrUnavailable }

// note is a sentence for a user of a kernel without the feature: its name, and how the fabric works
// without it.
func (e *UnsupportedError) note() string { return e.Error() + ": " + e.Without }

var (
	noSegment = &UnsupportedError{"UDP_SEGMENT", "4.18", "datagrams are sent without segmentation offload"}
	noMerge   = &UnsupportedError{"UDP_GRO", "5.0", "datagrams are received one by one"}
	noBatch   = &UnsupportedError{"sendmmsg and recvmmsg", "3.0", "one message a call"}
)

var probed struct {
	sync.Mutex
	done   bool
	kernel Kernel
}

// Probe returns what the running kernel has. It asks once a process; an error, of a machine without
// descriptors for instance, is not remembered.
func Probe() (Kernel, error) {
	probed.Lock()
	defer probed.Unlock()
	if probed.done {
		return probed.kernel, nil
	}
	k, err := probe()
	probed.kernel, probed.done = k, err == nil
	return k, err
}

func probe() (Kernel, error) {
	fd, err := Open(unix.AF_INET)
	if errors.Is(err, unix.EAFNOSUPPORT) { // where there is only IPv6, it has the same options
		fd, err = Open(unix.AF_INET6)
	}
	if err != nil {
		return Kernel{}, err
	}
	defer func() { _ = unix.Close(fd) }()
	return Kernel{
		Segment: unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT, 0) == nil,
		Merge:   unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO, 0) == nil,
		Batch:   sys.HasBatches(fd),
	}, nil
}

// Limit returns the features of a kernel to use at a step. several says whether a message can hold several
// of the caller's datagrams; where it cannot, there is nothing to segment and merge. OffloadAuto does
// without missing features, and notes tell the consequences, one sentence each. With any other step a
// missing feature is an error, which wraps an *UnsupportedError.
func (k Kernel) Limit(want Offload, several bool) (use Kernel, notes []string, err error) {
	offload := several && (want == OffloadAuto || want == OffloadGSO)
	for _, f := range []struct {
		wanted, has bool
		use         *bool
		missing     *UnsupportedError
	}{
		{offload, k.Segment, &use.Segment, noSegment},
		{offload, k.Merge, &use.Merge, noMerge},
		{want != OffloadSingle, k.Batch, &use.Batch, noBatch},
	} {
		*f.use = f.wanted && f.has
		if !f.wanted || f.has {
			continue
		}
		if want != OffloadAuto {
			return Kernel{}, nil, fmt.Errorf("offload %v: %w", want, f.missing)
		}
		notes = append(notes, f.missing.note())
	}
	return use, notes, nil
}

// Option is a socket option that takes an integer.
type Option struct {
	Name       string
	Level, Opt int
	Value      int
	Since      string // the first Linux that has it, where that is not all that Go runs on
}

// Merging has a socket give datagrams out merged.
var Merging = Option{"UDP_GRO", unix.IPPROTO_UDP, unix.UDP_GRO, 1, noMerge.Since}

// Set sets options of a socket, in order. An error names the option; where the kernel does not know it, it
// wraps an *UnsupportedError.
func Set(fd int, options ...Option) error {
	for _, o := range options {
		err := unix.SetsockoptInt(fd, o.Level, o.Opt, o.Value)
		if errors.Is(err, unix.ENOPROTOOPT) && o.Since != "" {
			err = &UnsupportedError{Feature: o.Name, Since: o.Since}
		}
		if err != nil {
			return fmt.Errorf("set %s=%d: %w", o.Name, o.Value, err)
		}
	}
	return nil
}
