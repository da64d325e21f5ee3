package wire

// Read is chunks of a shard that lie one behind the other in another rank's memory, to be read from there by an RDMA
// device: the rest of an Offer.
type Read struct {
	Head  Data // of the first chunk, as of a Repair
	Count int  // chunks; all but the last are full
	Bytes int  // of all of them
	Addr  uint64
	Key   uint32
}

// Introduction describes one end of a connection between the RDMA devices of two neighbours, by which one reads from
// the other. Addresses of the devices are the addresses of the ranks.
type Introduction struct {
	Source bool   // this end is read from
	Number uint32 // of the queue pair
	PSN    uint32 // of the first packet
	MTU    uint32 // bytes
}

// Control returns the message.
func (i *Introduction) Control() Control {
	m := Control{Kind: Introduce, PSN: i.PSN, Count: i.Number, Arena: i.MTU}
	if i.Source {
		m.Round = 1
	}
	return m
}

// IntroductionOf is the inverse of Control.
func IntroductionOf(m *Control) Introduction {
	return Introduction{Source: m.Round == 1, Number: m.Count, PSN: m.PSN, MTU: m.Arena}
}
