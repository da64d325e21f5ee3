package api

import "strings"

// Counter is one row of the table of counters.
type Counter struct {
	// Name is what C and Python call it. Go's name follows from it: GatherSentBytes, and Overlap
	// for overlap_ns, which is a time.Duration there.
	Name   string
	Unit   Unit
	Group  Group
	Source string // what counts it: a Go expression over s, internal/monitor's sources
	What   string // the counted thing, one sentence
	Normal string // whether that is normal, or where to look
}

// Unit is what a counter counts.
type Unit string

// Group is what counters are shown under.
type Group string

// The units. What counts nanoseconds has a name that ends in _ns.
const (
	operations    Unit = "operations"
	bytes         Unit = "bytes"
	chunks        Unit = "chunks"
	datagrams     Unit = "datagrams"
	contributions Unit = "contributions"
	results       Unit = "results"
	times         Unit = "times"
	causes        Unit = "causes"
	nanoseconds   Unit = "ns"
)

// The groups, in the order of the reference.
const (
	gather Group = "Allgather, Broadcast and Barrier"
	reduce Group = "Reduce-Scatter and Reduce"
	both   Group = "Both at once"
	single Group = "Messages from rank to rank"
	losses Group = "Losses and repairs"
	node   Group = "The switch"
	host   Group = "This host"
	gpu    Group = "GPUs"
)

// Groups returns the groups, in the order of the reference.
func Groups() []Group { return []Group{gather, reduce, both, single, losses, node, host, gpu} }

// Counters returns the table, in the order of struct mcast_stats.
func Counters() []Counter { return counters }

// GoName returns the name of the field in Go.
func (c *Counter) GoName() string { return camel(strings.TrimSuffix(c.Name, "_ns")) }

// camel writes sends_too_large as SendsTooLarge.
func camel(name string) string {
	var b strings.Builder
	for _, part := range strings.Split(name, "_") {
		b.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	return b.String()
}

// GoType returns the type of the field in Go.
func (c *Counter) GoType() string {
	if c.Unit == nanoseconds {
		return "time.Duration"
	}
	return "uint64"
}

// What operations waited for is explained in pkg/overlap.
const (
	gatherWait = "Time that Allgathers, Broadcasts and Barriers have waited "
	reduceWait = "Time that Reduce-Scatters and Reduces have waited "
	summed     = ", added up over the operations that are done."
)

// counters is the table. Programs were built with struct mcast_stats as it is: a new row goes to
// the end, and none changes its place or name.
var counters = []Counter{
	{"gather_ops", operations, gather, "s.calls.Gathered",
		"Allgathers, Broadcasts and Barriers done, the steps of Allreduces included.",
		"Normal."},
	{"gather_bytes", bytes, gather, "s.calls.Bytes[overlap.Gather]",
		"This rank's own shards in the Allgathers and Broadcasts that it has posted.",
		"Normal."},
	{"gather_sent_bytes", bytes, gather, "s.fabric.SentBytes",
		"Bytes of Allgathers and Broadcasts sent by multicast, or written to shared memory, headers included.",
		"Normal: a few per cent more than gather_bytes, at any number of ranks."},
	{"gather_control_bytes", bytes, gather, "s.fabric.ControlBytes",
		"Bytes of control messages and repairs of Allgathers, Broadcasts and Barriers, sent to single ranks.",
		"Normal; where it comes near gather_sent_bytes, look at chunks_repaired of the other ranks."},
	{"gather_received_bytes", bytes, gather, "s.fabric.ReceivedBytes",
		"Bytes of Allgathers and Broadcasts received by multicast, or read from shared memory, headers included, repairs " +
			"not.",
		"Normal."},
	{"reduce_ops", operations, reduce, "s.calls.Switched + s.calls.Direct",
		"Reduce-Scatters and Reduces done, the steps of Allreduces included: switch_ops and direct_ops together.",
		"Normal."},
	{"reduce_bytes", bytes, reduce, "s.calls.Bytes[overlap.Reduce]",
		"This rank's own results of the Reduce-Scatters and Reduces that it has posted.",
		"Normal."},
	{"reduce_sent_bytes", bytes, reduce, "s.reduce.SentBytes",
		"Bytes of Reduce-Scatters and Reduces sent to the switch or to other ranks, headers included.",
		"Normal: reduce_bytes times the number of other ranks (of other hosts, where the ranks of a host work together), " +
			"and a few per cent."},
	{"chunks_lost", chunks, losses, "s.gather.Lost",
		"Chunks that this rank asked for and that multicast did not bring after all.",
		"Normal up to 1 % of the chunks received; above that, a warning says where to look."},
	{"chunks_repaired", chunks, losses, "s.gather.Repaired",
		"Chunks that came by repair, over TCP or read by an RDMA device (chunks_read), because multicast had not brought " +
			"them in time.",
		"Normal up to 1 % of the chunks received; above that, a warning says where to look."},
	{"chunks_injected", chunks, losses, "s.fabric.Injected + s.reduce.Injected",
		"Chunks and datagrams of the switch that this rank threw away on purpose.",
		"Should be 0; otherwise MCAST_LOSS is set."},
	{"chunks_dropped", chunks, losses, "s.fabric.Dropped - min(s.fabric.Injected, s.fabric.Dropped)",
		"Chunks that arrived and were of no use: mostly second copies, where a chunk came by multicast and by " +
			"repair, else late or malformed ones. No data are missing.",
		"Normal. Without chunks_repaired, multicast was late and not lost: a chunk was asked for, came by multicast after " +
			"all, and its repair " +
			"was not needed. Above 1 % of the chunks received, ranks wait for a core, or MCAST_CUTOFF is too short here. A " +
			"stranger's chunks " +
			"are in chunks_mismatched as well."},
	{"gather_busy_ns", nanoseconds, gather, "s.gatherBusy",
		"Time with an Allgather, Broadcast or Barrier in flight.",
		"Normal."},
	{"reduce_busy_ns", nanoseconds, reduce, "s.reduceBusy",
		"Time with a Reduce-Scatter or Reduce in flight.",
		"Normal."},
	{"overlap_ns", nanoseconds, both, "s.overlap",
		"Time with an Allgather, Broadcast or Barrier and a Reduce-Scatter or Reduce in flight.",
		"Normal: FSDP hides one behind the other that long."},

	{"gather_queued_ns", nanoseconds, gather, "s.gatherWaits[overlap.Queued]",
		gatherWait + "for older ones" + summed,
		"Normal where several are posted at once."},
	{"reduce_queued_ns", nanoseconds, reduce, "s.reduceWaits[overlap.Queued]",
		reduceWait + "for older ones" + summed,
		"Normal where several are posted at once."},
	{"gather_peers_ns", nanoseconds, gather, "s.gatherWaits[overlap.Peers]",
		gatherWait + "for other ranks to post them" + summed,
		"If it is the largest, look at what the slowest rank does meanwhile."},
	{"reduce_peers_ns", nanoseconds, reduce, "s.reduceWaits[overlap.Peers]",
		reduceWait + "for other ranks to post them" + summed,
		"If it is the largest, look at what the slowest rank does meanwhile."},
	{"gather_turn_ns", nanoseconds, gather, "s.gatherWaits[overlap.Turn]",
		gatherWait + "with something to send, for a turn, credit or the foreground" + summed,
		"Normal; in a group of MCAST_CLASS=background, training has the link in that time."},
	{"reduce_turn_ns", nanoseconds, reduce, "s.reduceWaits[overlap.Turn]",
		reduceWait + "with something to send, for credit or the foreground" + summed,
		"Normal; in a group of MCAST_CLASS=background, training has the link in that time."},
	{"gather_transfer_ns", nanoseconds, gather, "s.gatherWaits[overlap.Transfer]",
		gatherWait + "for bytes on their way" + summed,
		"Normal; if the network should be faster, look at chunks_repaired."},
	{"reduce_transfer_ns", nanoseconds, reduce, "s.reduceWaits[overlap.Transfer]",
		reduceWait + "for bytes on their way" + summed,
		"Normal; if the network should be faster, look at reduce_resent and fallbacks."},
	{"gather_finish_ns", nanoseconds, gather, "s.gatherWaits[overlap.Finish]",
		gatherWait + "for the word of other ranks, all bytes being there" + summed,
		"Normal; if it is large, look at chunks_repaired of the other ranks."},
	{"reduce_finish_ns", nanoseconds, reduce, "s.reduceWaits[overlap.Finish]",
		reduceWait + "for the word of other ranks, all bytes being there" + summed,
		"Normal."},

	{"reduce_received_bytes", bytes, reduce, "s.reduce.ReceivedBytes",
		"Bytes of Reduce-Scatters and Reduces received from the switch or from other ranks, headers included.",
		"Normal: about reduce_bytes through a switch; directly, that times the number of other ranks."},
	{"reduce_resent", contributions, node, "s.reduce.Resent",
		"Contributions that were sent to the switch again.",
		"Normal up to 1 % of the contributions sent; above that, look at the drops of the interface, of the ports and of " +
			"the switch."},
	{"reduce_refused", datagrams, node, "s.reduce.Refused",
		"Datagrams that claimed to be the switch's and were garbled, or had a wrong tag: they were thrown away.",
		"Should be 0; otherwise look at who else sends to this rank (SECURITY.md)."},
	{"switch_ops", operations, node, "s.calls.Switched",
		"Of reduce_ops, operations done through the switch. Where the ranks of a host work together, an operation counts " +
			"if all that " +
			"this rank sent to other hosts for it went through the switch.",
		"Normal."},
	{"direct_ops", operations, node, "s.calls.Direct",
		"Of reduce_ops, operations done directly, from the beginning or after the switch was lost.",
		"Normal without MCAST_SWITCH; with it, info() says why."},
	{"fallbacks", times, node, "s.fallbacks",
		"Times that the switch was given up, and operations went on directly.",
		"Should be 0; otherwise info() says why, and the log of the switch."},
	{"chunks_mismatched", chunks, losses, "s.gather.Mismatched + s.fabric.Forged",
		"Of chunks_dropped, chunks that belong to none of the group's operations, do not prove MCAST_SECRET, or have a " +
			"wrong checksum (MCAST_CHECKSUM). " +
			"No operation failed for them: they are a stranger's, or have changed on their way.",
		"Should be 0; otherwise another program sends to this group: look at MCAST_GROUP and MCAST_PORT; or, with " +
			"MCAST_CHECKSUM, something on the path changes bytes."},
	{"sends_refused", datagrams, host, "s.fabric.Refused",
		"Multicast datagrams that a firewall or security policy of this host refused; repairs bring what was in them.",
		"Should be 0; otherwise let UDP to the group pass (nft list ruleset)."},
	{"sends_offline", datagrams, host, "s.fabric.Unreachable",
		"Multicast datagrams that were not sent because the interface was down or had no address; repairs bring what was " +
			"in them.",
		"Should be 0; otherwise look at the interface (ip addr, dmesg)."},
	{"sends_too_large", datagrams, host, "s.fabric.TooLarge",
		"Multicast datagrams that were not sent because the interface's MTU has been lowered; repairs bring what was in " +
			"them.",
		"Should be 0; otherwise set the MTU back, or join again."},
	{"warnings", causes, host, "uint64(len(s.warnings))",
		"Causes of slowness that were logged and are in the notes of info().",
		"Should be 0; otherwise read the notes."},
	{"reduce_dropped", results, node, "s.reduce.Dropped",
		"Results from the switch that came twice, or that nothing waited for. No data are missing.",
		"Normal beside reduce_resent."},
	{"chunks_relayed", chunks, gather, "s.gather.Relayed",
		"Chunks that came from the left neighbour because multicast does not reach every rank, or MCAST_MULTICAST is off.",
		"Should be 0 on a network with multicast; otherwise info() says between which ranks it does not pass."},
	{"shared_ops", operations, gather, "s.calls.Shared",
		"Allgathers with a result that lies once in memory that the ranks of a host share.",
		"Normal with MCAST_OUTPUTS and torch_mcast.fsdp; where it stands still there, info() says why."},
	{"node_sent_bytes", bytes, host, "s.calls.NodeSent",
		"Bytes written to the memory that ranks of a host share where they work together, headers and control messages " +
			"included. Other counters have the bytes sent to other hosts.",
		"Normal. 0 where every rank stands alone: info() says why."},
	{"node_received_bytes", bytes, host, "s.calls.NodeReceived",
		"Bytes read from the memory that ranks of a host share where they work together, headers included.",
		"Normal. 0 where every rank stands alone: info() says why."},
	{"device_ops", operations, gpu, "s.device.Ops",
		"Operations on a GPU's tensors done; each is one or more operations of the other counters.",
		"Normal. 0 where tensors are on the CPU, or go over NCCL."},
	{"device_out_bytes", bytes, gpu, "s.device.OutBytes",
		"Bytes copied from a GPU to staging memory.",
		"Normal: a shard in an Allgather, all shards in a Reduce-Scatter."},
	{"device_in_bytes", bytes, gpu, "s.device.InBytes",
		"Bytes copied from staging memory to a GPU.",
		"Normal: the shards of others in an Allgather, a shard in a Reduce-Scatter."},
	{"device_made", times, gpu, "s.device.Made",
		"Pinned memory, streams and events that the GPU's driver was asked for.",
		"Should stand still after the first step; otherwise works are kept that nobody needs."},
	{"chunks_misplaced", chunks, gather, "s.fabric.Misplaced",
		"Chunks received by multicast that the kernel wrote to a wrong place, so that they were copied once more.",
		"Normal: it costs only a copy. Above 2 % of the chunks received, several roots send at once in messages below 8 " +
			"KiB, as with an " +
			"MTU of 1500 where the kernel merges nothing."},
	{"gather_lent_bytes", bytes, gather, "s.fabric.LentBytes",
		"Of gather_sent_bytes, bytes that an RDMA device has read from registered memory by itself, without a copy.",
		"Normal. 0 where nothing is registered (mcast_register), and without RDMA."},
	{"registrations", times, host, "s.fabric.Registrations",
		"Times that memory was registered with the RDMA device of Allgathers and Broadcasts (ibv_reg_mr), its rings " +
			"included.",
		"Should stand still after the first step; otherwise memory is registered for each operation: keep it registered."},
	{"registrations_refused", times, host, "s.refusedRegistrations",
		"Times that memory could not be registered, so that chunks are copied on their way from there.",
		"Should be 0; otherwise a warning names the cause, such as the limit of locked memory (ulimit -l)."},
	{"chunks_read", chunks, losses, "s.fabric.ReadChunks",
		"Of chunks_repaired, chunks that this rank's RDMA device has read from the left neighbour's memory; the others " +
			"were pushed over TCP.",
		"Normal. 0 without RDMA, where the left neighbour has not registered its buffer (mcast_register), and after a read " +
			"has failed."},
	{"chunks_read_bytes", bytes, losses, "s.fabric.ReadBytes",
		"Bytes of the chunks in chunks_read.",
		"Normal."},
	{"message_ops", operations, single, "s.messages.Ops",
		"Sends, receives, all-to-alls, gathers and scatters posted.",
		"Normal."},
	{"message_sent_bytes", bytes, single, "s.messages.SentBytes",
		"Bytes of messages sent to other ranks, headers included.",
		"Normal."},
	{"message_received_bytes", bytes, single, "s.messages.ReceivedBytes",
		"Bytes of messages received from other ranks, headers included.",
		"Normal."},
}
