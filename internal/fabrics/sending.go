package fabrics

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// SendingLink is the link by which a group's data leave the host; nil where none do.
type SendingLink struct{ link hostnet.Link }

// openLink returns the link of an interface, and warnings about it.
func openLink(n hostnet.Network, ifi *net.Interface) (*SendingLink, []Warning) {
	if ifi.Flags&net.FlagLoopback != 0 {
		return nil, nil
	}
	l, err := n.Link(ifi)
	if err != nil {
		return &SendingLink{l}, []Warning{{"link alone", fmt.Sprintf(
			"other processes of this host do not learn what this one sends by %s, so an Allgather of one and a Reduce-Scatter "+
				"of another"+
				" may hinder each other: %v", ifi.Name, err)}}
	}
	return &SendingLink{l}, nil
}

// Fabric returns the link in the form that engines use.
func (s *SendingLink) Fabric() fabric.Link {
	if s == nil {
		return nil
	}
	return s.link
}

// From returns the link in the form that engines use, if data from this local address leave by it.
func (s *SendingLink) From(local netip.Addr) fabric.Link {
	if s == nil || !s.link.Has(local) {
		return nil
	}
	return s.link
}

func (s *SendingLink) close() error {
	if s == nil {
		return nil
	}
	return s.link.Close()
}
