// Package switchd is the switch of the in-network Reduce-Scatter as a program: it drives
// internal/protocol/innetwork over sockets for any number of jobs. A job is one communicator's
// Reduce-Scatter at this switch.
//
//   - Server listens for sessions (internal/session), admits their jobs and bounds the resources of each.
//   - job is the state that the members of a communicator share: it waits until all are
//     there, sets the terms, and ends when the first of them is lost.
//   - Workers move the bytes. Worker w owns stripe w of every job; a stripe has
//     sockets, slots and credits of its own, so workers share nothing.
//
// A switch may have a parent: it then sums the contributions of its own members and is itself a
// member there, in each job.
package switchd

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/session"
	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
)

// Config says how a switch is set up. The zero value of a field stands for its default.
type Config struct {
	// Bind is where sessions are accepted, host:port. Default 127.0.0.1:0: any
	// port, for this host alone. Datagrams use the same address.
	Bind string
	// Workers is how many goroutines move data. Default: half of the cores, 1 to 16.
	Workers int
	// Memory bounds the slots of all jobs, JobMemory those of one, in bytes.
	// Defaults: 1 GiB, and a sixteenth of Memory.
	Memory, JobMemory int64
	// Rate is the speed of a member's link, in bits per second; together with the delay it says how
	// large windows must be. Default: 40e9.
	Rate float64
	// Parent is the switch above, host:port; empty: there is none.
	Parent string
	// FirstPort and LastPort bound the UDP ports, for firewalls. Default: any.
	FirstPort, LastPort uint16
	// Secrets admits only members that prove one of them. Default: everybody.
	Secrets session.Secrets
	// Jobs bounds how many there are at a time, Members their members in all. Defaults: 256, 4096.
	// Of jobs and memory, each of several secrets has an equal share.
	Jobs, Members int
	// JoinTimeout is how long a job waits for the last of its ranks. Default: 30 s.
	JoinTimeout time.Duration
	// Chunk bounds the payload of a datagram in bytes. Default: what the paths carry.
	Chunk int
	// Network is what the switch reaches members and its parent over. Default: the kernel.
	Network session.Network
	// Elsewhere says that what goes from an address of this host to a member leaves by another interface than the one that
	// has the address; empty: it does not. Default: nobody asks.
	Elsewhere func(local, member netip.Addr) string
	// Offload is for tests. Default: the best that there is.
	Offload batch.Offload
	// Log takes what happens to jobs. Default: nothing is logged.
	Log *slog.Logger
}

// handshake bounds each wait for a frame of somebody who is not admitted yet.
const handshake = 5 * time.Second

// MaxWorkers bounds the stripes of a job; the wire has room for 256.
const MaxWorkers = 64

// complete fills in defaults and reports values that are not allowed.
func (c Config) complete() (Config, error) {
	set(&c.Bind, "127.0.0.1:0")
	set(&c.Workers, min(max(runtime.NumCPU()/2, 1), 16))
	set(&c.Memory, 1<<30)
	set(&c.JobMemory, max(c.Memory/16, 1))
	set(&c.Rate, 40e9)
	set(&c.Jobs, 256)
	set(&c.Members, 4096)
	set(&c.Chunk, 1<<16)
	set(&c.Network, session.Network(session.Kernel{}))
	set(&c.JoinTimeout, 30*time.Second)
	set(&c.Log, slog.New(slog.DiscardHandler))
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("switch: "+format, args...))
		}
	}
	check(c.Workers >= 1 && c.Workers <= MaxWorkers, "%d workers; want 1 to %d", c.Workers, MaxWorkers)
	check(c.Memory >= 0 && c.JobMemory >= 0 && c.JobMemory <= c.Memory,
		"memory of %d bytes, and %d for a job; want at most as much for a job", c.Memory, c.JobMemory)
	check(c.Chunk >= 8, "chunks of %d bytes; want at least 8", c.Chunk)
	check(c.Rate > 0, "a rate of %v bit/s; want more than 0", c.Rate)
	check(c.FirstPort <= c.LastPort && (c.FirstPort > 0 || c.LastPort == 0), "ports %d to %d; want first to last",
		c.FirstPort, c.LastPort)
	check(c.Jobs > 0 && c.Members > 0 && c.JoinTimeout > 0, "%d jobs, %d members, %v to join; want more than 0 each",
		c.Jobs, c.Members, c.JoinTimeout)
	if c.Parent != "" {
		_, _, err := net.SplitHostPort(c.Parent)
		check(err == nil, "parent %q; want host:port", c.Parent)
	}
	return c, errors.Join(errs...)
}

// set gives a field its default.
func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
