package doctor

import "time"

// Matrix has the measurements between the hosts of a job. The zero value means that nothing was measured.
type Matrix struct {
	Pairs []Pair    `json:"pairs"`
	Loops []float64 `json:"loops,omitempty"` // by host, Mbit/s of a stream to itself; 0: not measured
}

// Pair is one direction between two hosts, by their places among the facts.
type Pair struct {
	From int `json:"from"`
	To   int `json:"to"`
	// Full is the packet that the interfaces at both ends carry, in bytes. Multicast and Unicast are
	// the largest packets that arrived each way; 0: none did.
	Full      int `json:"full"`
	Multicast int `json:"multicast"`
	Unicast   int `json:"unicast"`

	// Tried says that the two were tried against each other, so that what follows is known: of many
	// hosts not all pairs are.
	Tried   bool          `json:"tried"`
	TCP     bool          `json:"tcp"`          // a connection was made
	Flows   int           `json:"flows"`        // pairs of UDP ports that were tried
	Stopped int           `json:"stopped"`      // flows on which nothing arrived
	Sent    int           `json:"sent"`         // datagrams, on the flows that pass
	Got     int           `json:"got"`          // datagrams that arrived
	Lost    float64       `json:"lost"`         // share of the datagrams, 0 to 1
	Mbps    float64       `json:"mbps"`         // of a stream of TCP; 0: there was none
	RTT     time.Duration `json:"rtt_ns"`       // median, of small datagrams; 0: none came back
	Least   time.Duration `json:"rtt_least_ns"` // the shortest: what the path itself takes, and not a busy CPU

	// Train counts the packets by multicast at TrainMbps, and TrainUnicast those by unicast in between.
	Train        Count   `json:"train,omitzero"`
	TrainUnicast Count   `json:"train_unicast,omitzero"`
	TrainMbps    float64 `json:"train_mbps,omitzero"`
}

// Count is how many packets were sent, and how many arrived.
type Count struct {
	Sent int `json:"sent"`
	Got  int `json:"got"`
}

// Share is the part that arrived; 1 where nothing was sent.
func (c Count) Share() float64 {
	if c.Sent == 0 {
		return 1
	}
	return float64(c.Got) / float64(c.Sent)
}

// Better returns the one of two counts with the larger share; a count in which nothing was sent loses.
func (c Count) Better(other Count) Count {
	if other.Sent > 0 && (c.Sent == 0 || other.Share() > c.Share()) {
		return other
	}
	return c
}
