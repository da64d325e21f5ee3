package multicast

import (
	"fmt"
	"slices"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// Op describes an operation as the caller posts it.
type Op struct {
	Collective wire.Collective
	Root       int // of a Broadcast
	Bytes      int // N, bytes of one shard; 0 is legal
	// Sync gives the operation a barrier and a final handshake at any size: once it is done, no rank needs this one for
	// anything before.
	Sync bool
	// Call is the caller's call, if the operation is a step of one.
	Call wire.Call `json:",omitzero"`
	// Where an Allgather's shards lie in this rank's receive buffer, which begins where slot 0 would:
	// other ranks need not know, and may have theirs elsewhere. Slots must not change before the
	// operation is done.
	Stride int   `json:",omitempty"` // bytes from one slot to the next; 0: Bytes
	Slots  []int `json:",omitempty"` // the slot of each rank, no two the same; nil: in their order
}

// Start returns where in the receive buffer the shard of a root begins.
func (o *Op) Start(root int) int {
	if o.Collective != wire.Allgather {
		return 0
	}
	if o.Slots != nil {
		root = o.Slots[root]
	}
	return root * o.stride()
}

// Dense reports whether shards lie one behind the other, in the order of ranks.
func (o *Op) Dense() bool {
	return o.Collective != wire.Allgather || o.Slots == nil && o.stride() == o.Bytes
}

func (o *Op) stride() int {
	if o.Stride == 0 || o.Bytes == 0 {
		return o.Bytes
	}
	return o.Stride
}

// same reports whether two ranks that post o and other have called the same.
func (o *Op) same(other Op) bool {
	return o.Collective == other.Collective && o.Root == other.Root && o.Bytes == other.Bytes && o.Call.Equal(&other.Call)
}

// opOfCall returns a call as the operation that it would be if it were no step.
func opOfCall(k *wire.Call) Op {
	return Op{Collective: k.Collective, Root: int(k.Root), Bytes: int(k.Bytes)}
}

func (o Op) String() string { return o.text().String() }

func (o *Op) text() collective.Text {
	switch o.Collective {
	case wire.Broadcast:
		return collective.Textf("broadcast of %d bytes from rank %d", o.Bytes, collective.Place(o.Root))
	case wire.Barrier:
		return collective.Textf("barrier")
	}
	return collective.Textf("%v of %d bytes", o.Collective, o.Bytes)
}

// check returns an error, with the allowed values, if an operation is wrong.
func (o *Op) check(c *Config) error {
	switch {
	case o.Collective < wire.Barrier || o.Collective > wire.Allgather:
		return fmt.Errorf("multicast: unknown collective %d", o.Collective)
	case o.Root < 0 || o.Root >= c.Size:
		return fmt.Errorf("root %d is not a rank; ranks are 0 to %d", o.Root, c.Size-1)
	case o.Bytes < 0:
		return fmt.Errorf("size of %d bytes; it must be at least 0", o.Bytes)
	case o.Bytes/c.Chunk >= maxChunks/c.Size:
		return fmt.Errorf("size of %d bytes; with %d ranks and chunks of %d bytes it must be below %d",
			o.Bytes, c.Size, c.Chunk, maxChunks/c.Size*c.Chunk)
	}
	return o.checkPlace(c.Size)
}

// checkPlace returns an error, with the allowed values, if shards cannot lie at their places.
func (o *Op) checkPlace(size int) error {
	switch {
	case o.Collective != wire.Allgather:
	case o.Stride != 0 && o.Stride < o.Bytes:
		return fmt.Errorf("stride of %d bytes; it must be 0 or at least the %d of a shard", o.Stride, o.Bytes)
	case o.Slots == nil:
	case len(o.Slots) != size:
		return fmt.Errorf("slots of %d ranks; there are %d", len(o.Slots), size)
	default:
		last := -1
		for _, slot := range slices.Sorted(slices.Values(o.Slots)) {
			if slot <= last {
				return fmt.Errorf("slots %v; each must be at least 0, and no other rank's", o.Slots)
			}
			last = slot
		}
	}
	return nil
}
