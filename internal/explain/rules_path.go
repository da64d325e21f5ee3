package explain

import (
	"fmt"
	"slices"
)

// Rules about what lies between ranks.
const (
	tooManyLost  = 0.01 // of the chunks come by repair: a rank's own warning has the same bound
	fewChunks    = 100  // with fewer chunks, a share says nothing
	mostOf       = 0.8  // of all repairs concern one rank
	foreign      = 0.1  // of a link's capacity is used by other programs
	foreignBytes = 20e6 // a second, where nobody knows what the link can carry, and as much as the own
	fasterBy     = 2    // another link than the one in use
	inUse        = 0.25 // of a link's capacity is used: then a faster link would help
	atSwitch     = 0.25 // of the interval Reduce-Scatters wait for the word of the switch, at most ranks
	notFull      = 0.7  // of a link's capacity: ranks do not wait for a link that is less full
)

// link returns at how many Mbit/s the interface of a rank sends; 0: nobody knows.
func (a *Account) link() int {
	for _, l := range a.Place.Links {
		if l.Name == a.Interface {
			return l.Mbps
		}
	}
	return 0
}

// capacity returns how many bytes its link carries in the interval, each way; 0: nobody knows.
func (a *Account) capacity() float64 { return float64(a.link()) * 1e6 / 8 * a.Span.Seconds() }

// used is which part of its link's capacity is used, by this library or others, in the fuller direction; 0: nobody
// knows.
func (a *Account) used() float64 {
	c := a.capacity()
	if c == 0 {
		return 0
	}
	return max(float64(a.Place.InBytes), float64(a.Place.OutBytes)) / c
}

// own returns how many bytes this library has received and sent.
func (a *Account) own() (in, out float64) {
	in = a.count("gather_received_bytes") + a.count("reduce_received_bytes") + a.count("chunks_repaired")*float64(a.Chunk)
	out = a.count("gather_sent_bytes") + a.count("gather_control_bytes") + a.count("reduce_sent_bytes")
	return in, out
}

// losses finds the link, or the host, by which chunks are lost, or says that it is the network.
func losses(j *Job) []Finding {
	all, worst := 0.0, 0.0
	concerns := map[int]float64{} // repairs at a rank, or of its shards
	into := map[int]float64{}     // repairs at a rank alone
	for i := range j.Accounts {
		a := &j.Accounts[i]
		share, chunks := a.repairedShare()
		if share < tooManyLost || chunks < fewChunks {
			// Where most ranks lose what one sends, each may lose little: it counts once one has lost too much.
			share = 0
		}
		worst = max(worst, share)
		all += chunks
		concerns[a.Rank] += chunks
		into[a.Rank] += chunks
		for _, w := range a.Awaited {
			if w.Rank != a.Rank {
				concerns[w.Rank] += float64(w.Repaired)
			}
		}
	}
	if worst == 0 {
		return nil
	}
	for i := range j.Accounts {
		a := &j.Accounts[i]
		if concerns[a.Rank] < mostOf*all || j.Size < fewest {
			continue
		}
		share, chunks := a.repairedShare()
		f := Finding{
			Cause: "lossy-link", Limit: Network, Ranks: []int{a.Rank}, Share: worst,
			What: fmt.Sprintf("the link of rank %d loses packets", a.Rank),
			Figures: []string{
				fmt.Sprintf("%s of all repairs in the job concern it: %s of the chunks that it received came by repair, and the "+
					"others had %.0f of its own repaired",
					percent(min(1, concerns[a.Rank]/all)), percent(share), concerns[a.Rank]-into[a.Rank]),
			},
			Remedy: "on its host: ethtool -S " + a.Interface +
				", ip -s link; cable and transceiver; the port's drops and errors at the switch",
		}
		if a.Place.Drops > 0 {
			f.Figures = append(f.Figures, fmt.Sprintf("%s has dropped %d packets", a.Interface, a.Place.Drops))
		}
		// a datagram may be many chunks
		if over := float64(a.Place.Overruns); over >= tooManyLost*fewChunks && over >= chunks/20 {
			f.Cause, f.Limit = "receiver-overrun", Receiver
			f.What = fmt.Sprintf("rank %d does not read its sockets fast enough, and the kernel throws arriving packets away",
				a.Rank)
			f.Figures = append(f.Figures,
				fmt.Sprintf("its host had no room in a socket for %.0f datagrams (RcvbufErrors)", over))
			f.Remedy = "raise net.core.rmem_max there (mcast doctor says to what), lower MCAST_WINDOW, or give the rank more " +
				"of a CPU"
		}
		return []Finding{f}
	}
	return []Finding{{
		Cause: "lossy-network", Limit: Network, Share: worst, What: "packets are lost on the way between many ranks",
		Figures: []string{fmt.Sprintf("%.0f chunks came by repair, %s of the chunks received at the rank that loses most; "+
			"no rank's link has %s of the losses", all, percent(worst), percent(mostOf))},
		Remedy: "look at the drops of the switches' ports, lower MCAST_WINDOW, or raise net.core.rmem_max on all hosts",
	}}
}

// commonLink is the bytes a second that the links of half of the ranks carry at most. On a slower link, bytes that the
// kernel sends twice and the headers of small messages look like other traffic: the link is slow even without any.
func commonLink(j *Job) float64 {
	links := make([]int, 0, len(j.Accounts))
	for i := range j.Accounts {
		links = append(links, j.Accounts[i].link())
	}
	slices.Sort(links)
	return float64(links[len(links)/2]) * 1e6 / 8
}

// otherTraffic finds links that carry much that is not of this library.
func otherTraffic(j *Job) []Finding {
	f := Finding{
		Cause: "other-traffic", Limit: Network,
		What: "other traffic takes the links of this job: checkpoints, data that is loaded, another job, collectives of " +
			"gloo",
		Remedy: "find the sender (ss -tinp); write checkpoints at other times, over another network, or in the background " +
			"(MCAST_CLASS=background for checkpoints over this library)",
	}
	usual := commonLink(j)
	for i := range j.Accounts {
		a := &j.Accounts[i]
		if a.Interface == "" {
			continue
		}
		seconds, ownIn, ownOut := a.Span.Seconds(), 0.0, 0.0
		for k := range j.Accounts { // ranks of a host have one link
			if b := &j.Accounts[k]; b.Address == a.Address && b.Interface == a.Interface {
				in, out := b.own()
				ownIn, ownOut = ownIn+in, ownOut+out
			}
		}
		for _, way := range []struct {
			name       string
			passed, by float64
		}{{"in", float64(a.Place.InBytes), ownIn}, {"out", float64(a.Place.OutBytes), ownOut}} {
			others := way.passed - 1.05*way.by // headers of frames are not counted
			share := foreign
			if c := max(a.capacity(), usual*seconds); a.link() > 0 {
				share = others / c
			} else if others < foreignBytes*seconds || others < way.by {
				continue
			}
			if share < foreign/2 { // the other end of what one end sees better
				continue
			}
			if share >= foreign {
				f.Ranks = append(f.Ranks, a.Rank)
			} else {
				f.also = append(f.also, a.Rank)
			}
			f.Share = max(f.Share, share)
			f.Figures = append(f.Figures, fmt.Sprintf("%s of rank %d carried %.0f MB/s %s, and this job moved %.0f of them",
				a.Interface, a.Rank, way.passed/seconds/1e6, way.name, way.by/seconds/1e6))
		}
	}
	if f.Share < foreign {
		return nil
	}
	slices.Sort(f.Ranks)
	f.Ranks = slices.Compact(f.Ranks)
	f.also = slices.DeleteFunc(slices.Compact(f.also), func(r int) bool { return slices.Contains(f.Ranks, r) })
	return []Finding{f}
}

// interfaces finds hosts with ranks that use a link although the host has a faster one.
func interfaces(j *Job) []Finding {
	f := Finding{
		Cause: "wrong-interface", Limit: Settings, What: "ranks use a slow interface of their hosts, which have a faster one",
	}
	for i := range j.Accounts {
		a := &j.Accounts[i]
		in, out := a.own()
		used := max(in, out) / max(a.capacity(), 1)
		if a.link() == 0 || used < inUse {
			continue
		}
		for _, l := range a.Place.Links {
			if l.Name == a.Interface || l.Mbps < fasterBy*a.link() || slices.Contains(f.Ranks, a.Rank) {
				continue
			}
			f.Ranks = append(f.Ranks, a.Rank)
			f.Share = max(f.Share, used)
			f.Figures = append(f.Figures, fmt.Sprintf("rank %d: %s at %d Mbit/s, in use to %s; %s runs at %d", a.Rank,
				a.Interface, a.link(), percent(used), l.Name, l.Mbps))
			f.Remedy = fmt.Sprintf("MCAST_IFACE=%s, if it leads to the hosts of all ranks (mcast doctor tries it)", l.Name)
		}
	}
	if f.Ranks == nil {
		return nil
	}
	return []Finding{f}
}

// switches finds out whether Reduce-Scatters wait for the switch, or have lost it.
func switches(j *Job) []Finding {
	sum := func(name string) (n float64) {
		for _, x := range j.each(func(a *Account) float64 { return a.count(name) }) {
			n += x
		}
		return n
	}
	if sum("fallbacks") > 0 {
		return []Finding{{
			Cause: "switch-lost", Limit: Switch,
			What: "the switch was given up, and Reduce-Scatters go on directly, with more bytes on each link", Share: 1,
			Figures: []string{fmt.Sprintf("%.0f operations went directly, %.0f through it", sum("direct_ops"),
				sum("switch_ops"))},
			Remedy: "info() of a rank says why, and the log of the switch; it is tried again by itself",
		}}
	}
	if sum("switch_ops") == 0 {
		return nil
	}
	waits := median(j.each(func(a *Account) float64 {
		return (a.count("reduce_finish_ns") + a.count("reduce_turn_ns")) / float64(max(a.Span, 1))
	}))
	full := median(j.each(func(a *Account) float64 {
		in, out := a.own()
		return max(in, out) / max(a.capacity(), 1)
	}))
	resent := median(j.each(func(a *Account) float64 {
		return a.count("reduce_resent") / max(a.count("reduce_sent_bytes")/float64(max(a.Chunk, 1)), fewChunks)
	}))
	if known := j.Accounts[0].link() > 0; !(waits >= atSwitch && (!known || full < notFull)) && resent < tooManyLost {
		return nil
	}
	return []Finding{{
		Cause: "switch-overloaded", Limit: Switch, Share: max(waits, resent),
		What: "Reduce-Scatters wait for the switch: it sums more slowly than ranks send",
		Figures: []string{
			fmt.Sprintf("at most ranks they wait for its word for %s of the time, all having been sent", percent(waits)),
			fmt.Sprintf("%s of the contributions were sent again", percent(resent)),
		},
		Remedy: "look at the CPU of its host and its metrics (mcast switch --http); more workers there, another switch for " +
			"other jobs, or none: without MCAST_SWITCH ranks sum themselves",
	}}
}

// unicast says that multicast is not used on a network.
func unicast(j *Job) []Finding {
	for i := range j.Accounts {
		if a := &j.Accounts[i]; a.Allgather == "unicast" && a.count("gather_ops") > 0 {
			return []Finding{{
				Cause: "no-multicast", Limit: Network, What: "Allgathers go from rank to rank, since multicast does not reach " +
					"all of them: each link carries more than it would", Share: 0.5,
				Figures: []string{a.Reason}, Remedy: "mcast doctor --hosts says between which hosts it does not pass, and " +
					"docs/how-to/networks.md how to get it there",
			}}
		}
	}
	return nil
}

// small finds jobs that spend their time on many small operations.
func small(j *Job) []Finding {
	const (
		smallBytes = 16 << 10 // of a rank's shard; below, an operation takes as long as the network's and the hosts' delay
		manyOps    = 100      // a second
		ofTheTime  = 0.3
	)
	size := median(j.each(func(a *Account) float64 { return a.count("gather_bytes") / max(a.count("gather_ops"), 1) }))
	rate := median(j.each(func(a *Account) float64 { return a.count("gather_ops") / max(a.Span.Seconds(), 1e-9) }))
	busy := median(j.each((*Account).busy))
	if size > smallBytes || rate < manyOps || busy < ofTheTime {
		return nil
	}
	return []Finding{{
		Cause: "small-messages", Limit: Settings, Share: busy,
		What: "the job spends its time on many small collectives: each costs a delay and moves few bytes",
		Figures: []string{fmt.Sprintf("%.0f Allgathers and Broadcasts a second, of %.1f KiB a rank in the mean; "+
			"collectives are in flight for %s of the time", rate, size/1024, percent(busy))},
		Remedy: "gather more at a time: fully_shard on larger modules (a block, not its layers), or several tensors in one " +
			"call",
	}}
}
