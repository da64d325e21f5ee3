package monitor

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

// watcher watches a group for problems that make it slow but are no fault, and reports them.
type watcher struct {
	*Monitor
	samples []sample      // of the last seconds, oldest first
	waits   []wait        // of each lane
	warned  time.Duration // the longest wait that there was a warning of
	by      string        // how Allgathers travelled when that was last logged; "": as when the group was joined
}

// run looks until the group ends.
func (w *watcher) run() {
	tick := time.NewTimer(sys.NextBeat(monitorPause))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			tick.Reset(sys.NextBeat(monitorPause))
		case <-w.life.Done():
			return
		}
		if w.plan.Connects() {
			w.look(w.sample())
		}
		w.await()
		w.fade()
	}
}

func (w *watcher) sample() sample {
	c, f := w.ops.Column().Gather.Stats()
	s := sample{
		chunks: f.ReceivedChunks, repairs: c.Repaired, repairsOf: f.Repairs, refused: f.Refused, offline: f.Unreachable,
		tooLarge: f.TooLarge, forged: c.Mismatched + f.Forged, chunk: w.info.ChunkBytes,
	}
	s.by, s.reason = w.travels.Now(&c)
	s.link, s.mtu = w.network.Look(w.info.Interface)
	return s
}

// look warns of what has changed since the samples before.
func (w *watcher) look(s sample) {
	if len(w.samples) > monitorWindow {
		w.samples = w.samples[1:]
	}
	w.samples = append(w.samples, s)
	if before := cmp.Or(w.by, w.travels.By); s.by != before {
		w.tellWay(s.by, s.reason)
	}
	if len(w.samples) < 2 {
		return
	}
	iface, last := w.info.Interface, &w.samples[len(w.samples)-2]
	if s.refused > 0 {
		w.Warn("datagrams refused", fmt.Sprintf("a firewall or security policy on the host of rank %d refuses datagrams of "+
			"ours (EPERM); they come by repair, slowly: "+
			"let UDP to the group pass (nft list ruleset, iptables -L OUTPUT)", w.plan.Rank))
	}
	if s.offline > 0 {
		w.Warn("interface unusable",
			fmt.Sprintf("%s of rank %d was down, or without its address or route, for a while; unsent data come by repair",
				iface, w.plan.Rank))
	}
	if s.tooLarge > 0 {
		w.Warn("datagrams too large",
			fmt.Sprintf("the MTU of %s of rank %d is %d now, too small for chunks of %d bytes: its multicast comes by repair, "+
				"slowly; "+
				"set it back, or join again", iface, w.plan.Rank, s.mtu, s.chunk))
	}
	if s.forged > 0 {
		w.Warn("datagrams of strangers",
			fmt.Sprintf("rank %d drops datagrams that claim to be of this group and belong to none of its operations: "+
				"something else on the network sends to it (MCAST_GROUP, MCAST_PORT)", w.plan.Rank))
	}
	if s.link.Changes > last.link.Changes {
		w.Warn("link lost",
			fmt.Sprintf("%s of rank %d has lost its link and found it again: look at cable, transceiver and switch port", iface,
				w.plan.Rank))
	}
	if s.link.Mbps != last.link.Mbps && s.link.Mbps > 0 && last.link.Mbps > 0 {
		w.Warn("link speed", fmt.Sprintf("%s of rank %d runs at %d Mbit/s now, before at %d: look at cable and switch port",
			iface, w.plan.Rank, s.link.Mbps, last.link.Mbps))
	}
	if s.by == last.by && s.by != fabrics.Unicast { // where all is relayed, a few repairs are a large share
		w.lookAtLosses(iface)
	}
}

// tellWay says that Allgathers go another way now: each time, since multicast may come and go.
func (w *watcher) tellWay(by, reason string) {
	w.by = by
	text := fmt.Sprintf("rank %d sends Allgathers and Broadcasts by %s now: %s", w.plan.Rank, by, reason)
	if by == fabrics.Unicast && w.warnings.add(fabrics.NoMulticast, text+"; "+multicastRemedy) {
		text += "; it is tried again now and then"
	}
	w.log.Warn(text, "cause", fabrics.NoMulticast)
}

// lookAtLosses warns of losses that go on: in the first and in the second half of the window.
func (w *watcher) lookAtLosses(iface string) {
	if len(w.samples) <= monitorWindow {
		return
	}
	first, middle, last := &w.samples[0], &w.samples[monitorWindow/2], &w.samples[monitorWindow]
	if share(first, middle) < tooManyLost || share(middle, last) < tooManyLost {
		return
	}
	lost := share(first, last)
	text := fmt.Sprintf("%.0f %% of the chunks of rank %d have come by repair for %v", 100*lost, w.plan.Rank,
		monitorWindow*monitorPause)
	if root, of := worstRoot(first, last); of > 0.6 {
		text += fmt.Sprintf(", most of them rank %d's", w.plan.Column.Rank(root))
	}
	if lost > 0.9 {
		w.Warn(fabrics.NoMulticast, text+": its multicast does not arrive any more; "+multicastRemedy)
		return
	}
	w.Warn("multicast lost", fmt.Sprintf("%s: datagrams are lost on the way. Look at the drops of %s (ethtool -S, ip -s "+
		"link) and of the switch's ports, raise net.core.rmem_max, "+
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
