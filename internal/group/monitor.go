package group

import (
	"cmp"
	"fmt"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/fabrics"
	"github.com/torch-mcast/torch-mcast/internal/transport/netdev"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

const (
	monitorPause  = time.Second
	monitorWindow = 10   // samples over which losses are counted
	tooManyLost   = 0.01 // share of chunks that come by repair
	fewChunks     = 100  // the share of fewer chunks says nothing
)

// sample is what the monitor looks at, once a second.
type sample struct {
	chunks     uint64   // that came by multicast
	repairs    uint64   // that came by repair
	repairsOf  []uint64 // by root
	by, reason string   // how Allgathers travel, and why
	refused    uint64   // datagrams that did not leave this host
	offline    uint64
	tooLarge   uint64
	forged     uint64
	link       netdev.Link
	mtu, chunk int
}

// monitor watches a group for problems that make it slow but are no fault, and reports them.
type monitor struct {
	*Group
	samples []sample      // of the last seconds, oldest first
	waits   []wait        // of each lane
	warned  time.Duration // the longest wait that there was a warning of
	by      string        // how Allgathers travelled when that was last logged; "": as when the group was joined
}

// run looks until the group ends.
func (m *monitor) run() {
	tick := time.NewTimer(sys.NextBeat(monitorPause))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			tick.Reset(sys.NextBeat(monitorPause))
		case <-m.life.Done():
			return
		}
		if m.agreed.Connects() {
			m.look(m.sample())
		}
		m.await()
		m.fade()
	}
}

func (m *monitor) sample() sample {
	c, f := m.column.Gather.Stats()
	s := sample{
		chunks: f.ReceivedChunks, repairs: c.Repaired, repairsOf: f.Repairs, refused: f.Refused, offline: f.Unreachable,
		tooLarge: f.TooLarge, forged: c.Mismatched + f.Forged, chunk: m.info.ChunkBytes,
	}
	s.by, s.reason = m.joinedBy.Now(&c)
	s.link, s.mtu = m.peers.Network.Look(m.info.Interface)
	return s
}

// look warns of what has changed since the samples before.
func (m *monitor) look(s sample) {
	if len(m.samples) > monitorWindow {
		m.samples = m.samples[1:]
	}
	m.samples = append(m.samples, s)
	if before := cmp.Or(m.by, m.joinedBy.By); s.by != before {
		m.travels(s.by, s.reason)
	}
	if len(m.samples) < 2 {
		return
	}
	iface, last := m.info.Interface, &m.samples[len(m.samples)-2]
	if s.refused > 0 {
		m.warn("datagrams refused", fmt.Sprintf("a firewall or security policy on the host of rank %d refuses datagrams of ours (EPERM); they come by repair, slowly: "+
			"let UDP to the group pass (nft list ruleset, iptables -L OUTPUT)", m.agreed.Rank))
	}
	if s.offline > 0 {
		m.warn("interface unusable", fmt.Sprintf("%s of rank %d was down, or without its address or route, for a while; unsent data come by repair", iface, m.agreed.Rank))
	}
	if s.tooLarge > 0 {
		m.warn("datagrams too large", fmt.Sprintf("the MTU of %s of rank %d is %d now, too small for chunks of %d bytes: its multicast comes by repair, slowly; "+
			"set it back, or join again", iface, m.agreed.Rank, s.mtu, s.chunk))
	}
	if s.forged > 0 {
		m.warn("datagrams of strangers", fmt.Sprintf("rank %d drops datagrams that claim to be of this group and belong to none of its operations: "+
			"something else on the network sends to it (MCAST_GROUP, MCAST_PORT)", m.agreed.Rank))
	}
	if s.link.Changes > last.link.Changes {
		m.warn("link lost", fmt.Sprintf("%s of rank %d has lost its link and found it again: look at cable, transceiver and switch port", iface, m.agreed.Rank))
	}
	if s.link.Mbps != last.link.Mbps && s.link.Mbps > 0 && last.link.Mbps > 0 {
		m.warn("link speed", fmt.Sprintf("%s of rank %d runs at %d Mbit/s now, before at %d: look at cable and switch port", iface, m.agreed.Rank, s.link.Mbps, last.link.Mbps))
	}
	if s.by == last.by && s.by != fabrics.Unicast { // where all is relayed, a few repairs are a large share
		m.lookAtLosses(iface)
	}
}

// travels says that Allgathers go another way now: each time, since multicast may come and go.
func (m *monitor) travels(by, reason string) {
	m.by = by
	text := fmt.Sprintf("rank %d sends Allgathers and Broadcasts by %s now: %s", m.agreed.Rank, by, reason)
	if by == fabrics.Unicast && m.warnings.add(fabrics.NoMulticast, text+"; "+multicastRemedy) {
		text += "; it is tried again now and then"
	}
	m.log.Warn(text, "cause", fabrics.NoMulticast)
}

// lookAtLosses warns of losses that go on: in the first and in the second half of the window.
func (m *monitor) lookAtLosses(iface string) {
	if len(m.samples) <= monitorWindow {
		return
	}
	first, middle, last := &m.samples[0], &m.samples[monitorWindow/2], &m.samples[monitorWindow]
	if share(first, middle) < tooManyLost || share(middle, last) < tooManyLost {
		return
	}
	lost := share(first, last)
	text := fmt.Sprintf("%.0f %% of the chunks of rank %d have come by repair for %v", 100*lost, m.agreed.Rank, monitorWindow*monitorPause)
	if root, of := worstRoot(first, last); of > 0.6 {
		text += fmt.Sprintf(", most of them rank %d's", m.agreed.Column.Rank(root))
	}
	if lost > 0.9 {
		m.warn(fabrics.NoMulticast, text+": its multicast does not arrive any more; "+multicastRemedy)
		return
	}
	m.warn("multicast lost", fmt.Sprintf("%s: datagrams are lost on the way. Look at the drops of %s (ethtool -S, ip -s link) and of the switch's ports, raise net.core.rmem_max, "+
		"or lower MCAST_WINDOW", text, iface))
}

// share is how much of what came between two samples came by repair.
func share(from, to *sample) float64 {
	repairs, chunks := to.repairs-from.repairs, to.chunks-from.chunks
	if repairs+chunks < fewChunks {
		return 0
	}
	return float64(repairs) / float64(repairs+chunks)
}

// worstRoot returns the root with the most repaired chunks, and its share of all repairs.
func worstRoot(from, to *sample) (root int, of float64) {
	var most, all uint64
	for r := range to.repairsOf {
		n := to.repairsOf[r] - from.repairsOf[r]
		if all += n; n > most {
			root, most = r, n
		}
	}
	return root, float64(most) / float64(max(1, all))
}
