package network

import (
	"time"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/fattree"
)

// Time is virtual, from the start of a run.
type Time = time.Duration

// Header is what every packet takes on the wire beside its payload, in bytes.
const Header = 64

// Config describes a network. Like a Scenario it is kept as JSON.
type Config struct {
	Tree fattree.Config
	// Gbps is the rate of the hosts' links, UplinkGbps of those between
	// switches (0: as Gbps).
	Gbps, UplinkGbps float64
	// Latency of a link and of the switch or NIC behind it.
	Latency Time
	// Queue is how many bytes an output port of a switch holds, with the packet
	// that it sends; 0: any. What does not fit is dropped. A train is dropped as
	// a whole if one of its packets would not fit, as they come and as the port
	// drains meanwhile; a reliable one that is sent again after a loss is so only
	// if its first does not, as its sender would go no faster than the port.
	Queue int
	// Lossless says that nothing is dropped for want of room: a packet waits
	// until there is room for it at the other end of the link, Queue bytes a
	// link there. A host takes packets off a link as its workers finish them,
	// and Depth does not count.
	Lossless bool
	// MTU is the wire bytes of a full packet: so much of a train has to have
	// arrived before it moves on. 0: 4096+Header.
	MTU int
	// Workers take packets off a host's receive queues, each off its own: that
	// of a packet is its Group modulo Workers. 0: 1. A packet takes Cost and
	// CostPerByte (ns a byte of payload); a queue holds Depth packets, with the
	// one being taken (0: any).
	Workers     int
	Cost        Time
	CostPerByte float64
	Depth       int
	CPU         CPU `json:",omitzero"`
	// Adaptive says that switches send unicast packets up by the port with the shortest queue, so that
	// they overtake each other. Multicast packets do not: as in InfiniBand's multicast forwarding
	// tables a tree fixes its links, one of each bundle, however long the queue there is. Multicast
	// packets of one sender and group overtake each other by Jitter only; those of several groups take
	// several trees.
	Adaptive bool
	// RTO is after how long a lost reliable packet is sent again, doubled with
	// each loss of the same packet up to 64 times; 0: 1 ms.
	RTO Time
	// GiveUp is after how long a reliable packet that is lost again is given up, and its Sender
	// told, as TCP does with a user timeout; 0: never.
	GiveUp Time `json:",omitempty"`
	Faults Faults
}
