package main

// #include "plugin.h"
import "C"

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/torch-mcast/torch-mcast/internal/group"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// NCCL's tuner answers on each rank for itself, and ranks that choose differently wait for each other
// for ever. So it chooses by what CollNet's connect has agreed upon: docs/decisions/0036.

// offer is sent by each rank in a connect, and describes the rank's host.
type offer struct {
	switched bool // MCAST_SWITCH names a switch
	nvswitch bool // this node has an NVSwitch
}

const offerFormat = "switch=%t nvswitch=%t"

func (o offer) String() string { return fmt.Sprintf(offerFormat, o.switched, o.nvswitch) }

func readOffer(line string) (o offer, err error) {
	if _, err = fmt.Sscanf(line, offerFormat, &o.switched, &o.nvswitch); err != nil {
		err = fmt.Errorf("%.80q is not %q: its library is of another version", line, offer{})
	}
	return o, err
}

// agreement is what all ranks conclude alike from all offers.
type agreement struct {
	switched bool // all name a switch; once connected: and it answers all of them
	alike    bool // all nodes have an NVSwitch, or none has
	// once connected: multicast reaches all ranks
	multicast bool
	paired    bool // once connected: an older communicator of the same ranks has CollNet
}

func agree(offers []offer) agreement {
	a := agreement{switched: true, alike: true}
	for _, o := range offers {
		a.switched = a.switched && o.switched
		a.alike = a.alike && o.nvswitch == offers[0].nvswitch
	}
	return a
}

// multicastReaches returns whether multicast reaches all ranks. A node with several GPUs has a group for each of
// them, which find out for themselves, as with switchAnswers: there it is an error if it does not, unless
// the setting says so on all of them.
func multicastReaches(g *group.Group, setting string, severalDevices bool) (bool, error) {
	if severalDevices && !g.Multicast() && setting != "off" {
		return false,
			fmt.Errorf("multicast does not reach all ranks: with several CollNet devices it must, or MCAST_MULTICAST be off "+
				"(here: %s)", g.Info().AllgatherReason)
	}
	return g.Multicast(), nil
}

// switchAnswers has all ranks make their first Reduce-Scatter, which joins them to the switch, and returns
// whether it went through the switch on all of them: each rank tells all others how its own one went. A
// node with several GPUs has a group for each GPU, and these groups cannot ask each other. There a switch
// that does not answer is an error, which makes NCCL give up CollNet in all of them.
func switchAnswers(g *group.Group, severalDevices bool) (bool, error) {
	size := g.Info().Size
	const element = 4 // bytes of an f32
	if err := g.ReduceScatter(make([]byte, size*element), make([]byte, element), reduce.F32, reduce.Sum, 1); err != nil {
		return false, err
	}
	saw, all := []byte{0}, make([]byte, size)
	if g.Stats().SwitchOps > 0 {
		saw[0] = 1
	}
	if err := g.Allgather(saw, all); err != nil {
		return false, err
	}
	for r, b := range all {
		switch {
		case b == 1:
		case severalDevices:
			return false,
				fmt.Errorf("the switch does not answer rank %d: with several CollNet devices it must, or MCAST_SWITCH be empty "+
					"(here: %s)", r, g.Info().ReduceScatterReason)
		default:
			return false, nil
		}
	}
	return true, nil
}

// pair returns whether these ranks have an older communicator with CollNet, and has that one know as well that it is
// one of a pair. All ranks must learn that between the same two operations of the older one: so its tuner waits
// meanwhile, and all must have been asked the same. Once it returns without an error, all ranks have joined.
func pair(g *group.Group, members uint64) (paired bool, err error) {
	var key, asked C.uint64_t
	older := C.connected_hold(C.uint64_t(members), &key, &asked)
	same := false
	defer func() { C.connected_let_go(older, C.bool(paired), C.bool(same)) }()
	mine := make([]byte, 2*8)
	binary.BigEndian.PutUint64(mine, uint64(key))
	binary.BigEndian.PutUint64(mine[8:], uint64(asked))
	all := make([]byte, g.Info().Size*len(mine))
	if err := g.Allgather(mine, all); err != nil {
		return false, err
	}
	same = older != nil
	for other := range slices.Chunk(all, len(mine)) {
		same = same && string(other) == string(mine)
	}
	if err := g.Barrier(); err != nil { // others may have got through
		return false, err
	}
	return same, nil
}
