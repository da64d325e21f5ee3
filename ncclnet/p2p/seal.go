package p2p

import (
	"errors"
	"fmt"
	"net"

	"github.com/torch-mcast/torch-mcast/internal/transport/identity"
	"github.com/torch-mcast/torch-mcast/internal/transport/ktls"
)

// kernel is what seals what C sends; tests have others.
type kernel struct {
	able func() error
	seal func(c net.Conn, k ktls.Keys) error
}

// sealPolicy says in a greeting whether this end has its kernel seal the bytes that follow. The greeting itself is
// sealed, so nobody on the path can change it.
type sealPolicy uint16

const (
	able     sealPolicy = 1 << iota // its kernel can
	requires                        // MCAST_NET_TLS=require: it goes on in no other way
	declines                        // MCAST_NET_TLS=off
)

var sealPolicies = map[string]sealPolicy{"": 0, "auto": 0, "require": requires, "off": declines}

// checkSeal fills in how this end stands to sealing.
func (o *Options) checkSeal() error {
	own, ok := sealPolicies[o.TLS]
	if !ok {
		return fmt.Errorf("p2p: TLS %q; allowed are auto, require and off", o.TLS)
	}
	if o.kernel.able == nil {
		o.kernel = kernel{ktls.Able, ktls.Seal}
	}
	o.sealPolicy = own
	switch {
	case own&requires != 0 && o.Identity == nil:
		return errors.New("p2p: MCAST_NET_TLS=require, and there is no secret to take keys from: set MCAST_SECRET on all " +
			"ranks (mcast secret makes one)")
	case own&requires != 0 && o.Fabric == "verbs":
		return errors.New("p2p: MCAST_NET_TLS=require and MCAST_NET_FABRIC=verbs: nothing seals what RDMA devices move; " +
			"want MCAST_NET_FABRIC=tcp or auto, or MCAST_NET_TLS=auto, with which it goes in the clear")
	case o.Identity == nil || own&declines != 0:
		return nil
	case o.Fabric == "verbs":
		o.unable = errors.New("MCAST_NET_FABRIC=verbs: nothing seals what RDMA devices move")
		return nil
	}
	if o.unable = o.kernel.able(); o.unable == nil {
		o.sealPolicy |= able
	} else if own&requires != 0 && o.Fabric == "tcp" {
		return fmt.Errorf("p2p: MCAST_NET_TLS=require: %w", o.unable)
	}
	return nil
}

// sealed tells whether a connection with an end of this policy is to be sealed, which that end decides alike. If not
// though there is a secret it says so; or it is refused.
func (o *Options) sealed(fabric fabrics, peer sealPolicy) (bool, error) {
	switch {
	case o.Identity == nil || fabric == shm:
		return false, nil
	case o.sealPolicy&peer&able != 0 && fabric == tcp:
		return true, nil
	}
	why := errors.New("the peer's kernel has no TLS (there, as root: modprobe tls)")
	switch {
	case o.unable != nil:
		why = o.unable
	case o.sealPolicy&declines != 0:
		why = errors.New("MCAST_NET_TLS=off at this end")
	case peer&declines != 0:
		why = errors.New("MCAST_NET_TLS=off at the peer")
	}
	switch {
	case o.sealPolicy&requires != 0:
		return false, fmt.Errorf("MCAST_NET_TLS=require: %w", why)
	case peer&requires != 0:
		return false, fmt.Errorf("MCAST_NET_TLS=require at the peer: %w", why)
	}
	if o.sealPolicy&declines == 0 && o.Unsealed != nil {
		o.Unsealed(why)
	}
	return false, nil
}

// directions of a connection.
type directions int

const (
	inward directions = 1 << iota
	outward
)

// seal has the kernel seal what follows on connections on which the greeting is over, in some directions.
func (o *Options) seal(lanes []*identity.Greeting, which directions) error {
	for _, g := range lanes {
		out, in, err := g.Keys("kernel", ktls.KeySize)
		if err == nil {
			var k ktls.Keys
			if which&inward != 0 {
				k.In = in
			}
			if which&outward != 0 {
				k.Out = out
			}
			err = o.kernel.seal(g.Below(), k)
		}
		clear(out)
		clear(in)
		if err != nil {
			return fmt.Errorf("seal the connection: %w", err)
		}
	}
	return nil
}

// below returns the connections that greetings were on.
func below(lanes []*identity.Greeting) (conns []net.Conn) {
	for _, g := range lanes {
		conns = append(conns, g.Below())
	}
	return conns
}

func sealedNote(sealed bool) string {
	if sealed {
		return ", sealed by the kernel (TLS)"
	}
	return ""
}
