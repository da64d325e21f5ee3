package main

/*
#include "plugin.h"
*/
import "C"

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/torch-mcast/torch-mcast/internal/transport/identity"
	"github.com/torch-mcast/torch-mcast/ncclnet/p2p"
)

var netListeners = handles[*p2p.Listener]{what: "listener"}

// latest is the identity of the latest secret: NCCL asks for a connection again and again until it has come about, and
// making one signs a certificate.
var latest struct {
	sync.Mutex
	secret string
	id     *identity.Identity
}

func identityOf(secret string) (*identity.Identity, error) {
	latest.Lock()
	defer latest.Unlock()
	if secret == latest.secret {
		return latest.id, nil
	}
	id, err := identity.New(secret)
	if err == nil {
		latest.secret, latest.id = secret, id
	}
	return id, err
}

// netOptions returns how a device's connections are made.
func netOptions(dev int) (p2p.Options, error) {
	s, d, err := current(dev)
	if err != nil {
		return p2p.Options{}, err
	}
	id, err := identityOf(s.Secret)
	if err != nil {
		return p2p.Options{}, err
	}
	var device *p2p.Device
	if s.NetFabric == "verbs" {
		if device, err = p2p.OpenDevice(d.Name, d.Addr); err != nil {
			return p2p.Options{}, fmt.Errorf("MCAST_NET_FABRIC=verbs: %w", err)
		}
	}
	return p2p.Options{
		Addr: d.Addr, Interface: d.Name, Identity: id, Device: device, Lanes: s.NetLanes, Zerocopy: s.NetZerocopy,
		Fabric: s.NetFabric, TLS: s.NetTLS, Timeout: s.Timeout,
		Log:      func(line string) { say(C.NCCL_LOG_INFO, line) },
		Warn:     func(line string) { say(C.NCCL_LOG_WARN, line) },
		Unsealed: unsealed,
	}, nil
}

var unsealedOnce sync.Once

// unsealed warns, once a process, that the secret does not protect messages.
func unsealed(why error) {
	unsealedOnce.Do(func() {
		say(C.NCCL_LOG_WARN,
			fmt.Sprintf("NCCL's point-to-point messages can be read and changed on their way, MCAST_SECRET or not: %v "+
				"(MCAST_NET_TLS=require makes that an error, off ends this warning)", why))
	})
}

//export goNetListen
func goNetListen(dev C.int, handle unsafe.Pointer, out *C.int64_t) C.nccl_result {
	return verdict("listen", func() error {
		o, err := netOptions(int(dev))
		if err != nil {
			return err
		}
		l, err := p2p.Listen(o)
		if err != nil {
			return err
		}
		l.Handle(unsafe.Slice((*byte)(handle), C.NCCL_HANDLE_BYTES))
		*out = C.int64_t(netListeners.add(l))
		return nil
	})
}

//export goNetConnect
func goNetConnect(dev C.int, handle unsafe.Pointer, out *unsafe.Pointer) C.nccl_result {
	return verdict("connect", func() error {
		o, err := netOptions(int(dev))
		if err != nil {
			return err
		}
		*out, err = p2p.Connect(unsafe.Slice((*byte)(handle), C.NCCL_HANDLE_BYTES), o)
		return err
	})
}

//export goNetAccept
func goNetAccept(handle C.int64_t, out *unsafe.Pointer) C.nccl_result {
	return verdict("accept", func() error {
		l, err := netListeners.get(int64(handle))
		if err != nil {
			return argument("%v", err)
		}
		*out, err = l.Accept()
		return err
	})
}

//export goNetCloseListen
func goNetCloseListen(handle C.int64_t) C.nccl_result {
	return verdict("closeListen", func() error {
		l, err := netListeners.take(int64(handle))
		if err != nil {
			return argument("%v", err)
		}
		return l.Close()
	})
}
