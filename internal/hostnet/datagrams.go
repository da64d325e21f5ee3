package hostnet

import (
	"net"

	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/tcp"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
)

// RDMA is a Network that has RDMA devices.
type RDMA interface {
	// Verbs is how chunks travel through them.
	Verbs() DeviceDatagrams
	// Hardware reports whether this host has one that auto may take.
	Hardware() bool
}

// DeviceDatagrams is datagrams through RDMA devices.
type DeviceDatagrams interface {
	Datagrams
	Fitter
	// Try returns why auto does not take the device, though Fit found it; ranks is how many send to each other in a
	// Reduce-Scatter.
	Try(o *udp.Options, ranks int) error
}

// Datagrams is how chunks travel: part of Network.
type Datagrams interface {
	// Probe opens what finds out what paths carry.
	Probe(o *udp.Options) (Prober, error)
	// Gather opens the fabric of Allgather and Broadcast, and takes over the control connections.
	// After an error they are in control still, to open again with or to close.
	Gather(o *udp.Options, control map[int]net.Conn) (fabric.Gather, error)
}

// Fitter is what shortens an interface's MTU to what datagrams carry that do not travel as UDP.
type Fitter interface {
	Fit(o *udp.Options) error
}

// Streamer opens streams that go another way than TCP, on the interface of chunks. Otherwise it is Network.Streams.
type Streamer interface {
	StreamsOn(chunks *udp.Options, o *tcp.Options, conns map[int]net.Conn) (fabric.Watched, error)
}
