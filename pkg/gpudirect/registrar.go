package gpudirect

// Registrar makes memory known to the fabric, device or driver that moves it: the Registrar of
// RDMA devices pins pages and gets keys, sockets and shared memory need nothing (Unpinned).
// The Cache calls it from one goroutine at a time and waits; it must not call
// the Cache.
type Registrar interface {
	// Register is given whole pages. The token is the fabric's: a memory
	// region, a key. On an error nothing stays registered.
	Register(addr, size uintptr, kind Kind) (token any, err error)
	// Deregister is called once for each token. Nothing is in flight then.
	Deregister(token any) error
	// MayOutlive tells whether a registration may stay when nobody refers to
	// it any more, so that the next one of the same memory is free.
	//
	// Pages that are pinned stay with the device when their address is
	// unmapped, and if it is mapped again the device writes into pages that
	// nobody reads. So it is true only of a registration that follows the
	// mapping (nothing is pinned; on-demand paging). NCCL's own InfiniBand
	// transport keeps nothing (src/transport/net_ib/reg.cc, v2.30.7).
	MayOutlive(kind Kind) bool
}

// Unpinned is the Registrar of fabrics in which the CPU moves the bytes, by address.
type Unpinned struct{}

// Register does nothing; the token is nil.
func (Unpinned) Register(uintptr, uintptr, Kind) (any, error) { return nil, nil }

// Deregister does nothing.
func (Unpinned) Deregister(any) error { return nil }

// MayOutlive is true: the CPU always reaches the memory that is mapped at an address now.
func (Unpinned) MayOutlive(Kind) bool { return true }
