// Package p2p is the net side of the NCCL plugin: connections that carry
// messages one way, over TCP or, within a host, over shared memory. Go connects;
// messages then move in C, see p2p.h, and never enter Go.
//
// docs/decisions/0013-net-data-path.md says why.
package p2p

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/transport/identity"
)

// MaxLanes is the largest number of sockets of a connection.
const MaxLanes = 16

// Options are one end's settings. The two ends may differ: they agree on the
// lesser number of lanes and on a fabric that both allow.
type Options struct {
	Addr netip.Addr // of this end; one that connects may leave the choice to the kernel
	// Interface is the one that has Addr, by which connections leave; empty: as routes say.
	Interface string
	// Lanes: sockets or queue pairs of a connection, 1 to 16; 0: 4, on fewer cores as many, 2 at the least and within a
	// host
	Lanes    int
	Cut      int    // bytes from which a message uses all lanes; 0: 256 KiB
	Buffer   int    // bytes of each socket's buffers; 0: the kernel decides, except for the send buffer within a host
	Ring     int    // bytes of shared memory a connection, a power of two from 256 to 1 GiB; 0: 512 KiB
	Zerocopy string // "auto" (""): where the kernel does not copy after all; "on", "off"
	Fabric   string // "auto" (""): shm within a host, else tcp; "tcp", "shm", "verbs": that one or an error
	// Identity is of the secret that both ends prove when they connect; nil: there is none.
	Identity *identity.Identity
	// TLS: with an Identity: "auto" (""): the kernels seal what goes over TCP where those of both ends can; "require": or
	// it is an error; "off"
	TLS      string
	Device   *Device       // that moves the messages, with "verbs"
	Timeout  time.Duration // for a peer's host to answer, and to acknowledge bytes; 0: 30 s
	Log      func(string)  // notes on what was chosen; may be nil
	Warn     func(string)  // what ended a connection on which nobody may wait; may be nil
	Unsealed func(error)   // with an Identity and TLS auto: why a connection goes in the clear; may be nil

	fewer      int // lanes within a host, if not as many
	kernel     kernel
	sealPolicy sealPolicy
	unable     error // why sealPolicy is not able, unless it declines
}

// patience is how long an end waits for a process that may be stopped on a host that answers. NCCL sets no limit: a
// process that was stopped goes on where it was.
func (o *Options) patience() time.Duration { return 20 * o.Timeout }

// keepAlive ends a connection when the other host has not answered for Timeout, until p2p_open sets its own, and the
// watch (watch.c) looks at senders.
func (o *Options) keepAlive() net.KeepAliveConfig {
	const probes = 4
	each := max(o.Timeout/(2*probes), time.Second)
	return net.KeepAliveConfig{Enable: true, Idle: max(o.Timeout/2, time.Second), Interval: each, Count: probes}
}

// fabrics is a set.
type fabrics uint16

const (
	tcp fabrics = 1 << iota
	shm
	verbs
)

func (f fabrics) String() string {
	switch f {
	case tcp:
		return "tcp"
	case shm:
		return "shm"
	case tcp | shm:
		return "tcp or shm"
	case verbs:
		return "verbs"
	}
	return "nothing"
}

var zerocopies = map[string]int{"off": 0, "on": 1, "auto": 2, "": 2}

// check fills in defaults.
func (o *Options) check() error {
	if o.Lanes == 0 {
		// Networks that bound a connection's rate want several; more than there are cores only take
		// turns on them.
		o.Lanes, o.fewer = max(2, min(4, runtime.GOMAXPROCS(0))), 2
	}
	if o.Lanes < 1 || o.Lanes > MaxLanes {
		return fmt.Errorf("p2p: %d lanes; allowed are 1 to %d", o.Lanes, MaxLanes)
	}
	if o.Cut < 0 || o.Buffer < 0 {
		return fmt.Errorf("p2p: cut %d, buffer %d; neither may be negative", o.Cut, o.Buffer)
	}
	if o.Ring == 0 {
		o.Ring = 512 << 10
	}
	if o.Ring < 256 || o.Ring > maxRing || o.Ring&(o.Ring-1) != 0 {
		return fmt.Errorf("p2p: ring of %d bytes; allowed are the powers of two from 256 to 1 GiB", o.Ring)
	}
	if _, ok := zerocopies[o.Zerocopy]; !ok {
		return fmt.Errorf("p2p: zerocopy %q; allowed are auto, on and off", o.Zerocopy)
	}
	switch o.Fabric {
	case "", "auto", "tcp", "shm", "verbs":
	default:
		return fmt.Errorf("p2p: fabric %q; allowed are auto, tcp, shm and verbs", o.Fabric)
	}
	if o.Fabric == "verbs" && o.Device == nil {
		return errors.New("p2p: fabric verbs without a device")
	}
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second
	}
	if o.Timeout < 0 {
		return fmt.Errorf("p2p: timeout of %v; it must be positive", o.Timeout)
	}
	return o.checkSeal()
}

// lanesOf returns how many lanes a connection may have.
func (o *Options) lanesOf(c net.Conn) int {
	if o.fewer > 0 && local(c) {
		return o.fewer
	}
	return o.Lanes
}

func (o *Options) fabrics() fabrics {
	switch o.Fabric {
	case "tcp":
		return tcp
	case "shm":
		return shm
	case "verbs":
		return verbs
	}
	return tcp | shm
}

func (o *Options) note(format string, args ...any) {
	if o.Log != nil {
		o.Log(fmt.Sprintf(format, args...))
	}
}
