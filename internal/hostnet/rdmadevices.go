//go:build cgo

package hostnet

import (
	"fmt"
	"net"

	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/ibverbs"
	"github.com/torch-mcast/torch-mcast/internal/transport/tcp"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
	"github.com/torch-mcast/torch-mcast/internal/transport/verbs"
)

// Verbs implements RDMA.
func (Kernel) Verbs() DeviceDatagrams { return Devices{} }

// Hardware implements RDMA.
func (Kernel) Hardware() bool { return ibverbs.Hardware() }

var _ RDMA = Kernel{}

// Devices are the host's RDMA devices.
type Devices struct{}

// Fit implements Fitter.
func (Devices) Fit(o *udp.Options) error { return verbs.Fit(o) }

// Try implements DeviceDatagrams.
func (Devices) Try(o *udp.Options, ranks int) error {
	name, err := verbs.Try(o, ranks)
	if err == nil && ibverbs.Software(name) {
		err = fmt.Errorf("device %s is software, and slower than UDP (MCAST_FABRIC=verbs takes it)", name)
	}
	if err == nil && ibverbs.InfiniBand(name) {
		err = fmt.Errorf("device %s is InfiniBand's, on which verbs has not run yet (MCAST_FABRIC=verbs takes it)", name)
	}
	return err
}

// Probe implements Datagrams.
func (Devices) Probe(o *udp.Options) (Prober, error) { return verbs.OpenProber(*o) }

// Gather implements Datagrams.
func (Devices) Gather(o *udp.Options, control map[int]net.Conn) (fabric.Gather, error) {
	own := *o
	own.Conns = control
	return verbs.Open(own)
}

// StreamsOn implements Streamer.
func (Devices) StreamsOn(chunks *udp.Options, o *tcp.Options, conns map[int]net.Conn) (fabric.Watched, error) {
	return verbs.OpenStreams(verbs.StreamsOptions{
		Rank: o.Rank, Size: o.Size, Interface: chunks.Interface, Address: chunks.Sources[o.Rank], Conns: conns,
		Stall: o.Stall, DSCP: o.DSCP,
	})
}
