// Package reduction runs internal/protocol/innetwork, unchanged, over internal/lab/sim/network:
// an in-network Reduce-Scatter of P hosts on a fat tree in virtual time, alone
// or beside other traffic on the same NICs (Khalilov et al., SC24, Insight 2 and appendix B).
//
// Every host has an engine.Reduce, which drives its innetwork.Member as a rank's does, over a path
// that is the simulated network; every switch of an aggregation tree has a node.Node with an
// innetwork.Stage for each stripe. Stripe s uses multicast tree s modulo the number of trees, so that several roots
// share the work: a host sends its contributions to its leaf, a switch its partial sums to its
// parent in the tree, and a result goes down to its owner alone.
//
//	host --contribution--> leaf --partial sums--> ... --> root
//	host <--result-------- leaf <--result-------- ... <-- root
//
// What travels is real: elements, headers and sums, and every byte of every result is compared with reduce.Fold over
// all ranks' inputs in rank order. All inputs are windows of one vector of small numbers (see inputs), so a run of 1024
// hosts takes no more memory for them than one of 4; results take P N bytes. Nothing here knows what a member sends, or
// that some of its contributions stay at home.
//
// Direct is the same without switches, from rank to rank over streams (direct.go, streams.go).
//
// # The model
//
// Switches sum at line rate, as SHARP does: a contribution that has arrived
// costs no time, and the links to and from a switch are the network's.
// Config.SwitchCost and SwitchCostPerByte give each stage of a switch, which is
// one engine a stripe, a cost. Hosts' receive costs are the network's.
//
// A datagram is as large as Config.Chunk. One that is larger than the network's MTU is a train of packets; then fewer
// events stand for the same bytes: chunks of 64 KiB are the coarse mode. All datagrams are unreliable, as in life:
// members repair losses.
//
// # Pacing
//
// A host's sockets take contributions when its NIC is idle (Config.Ahead bytes, stripe by stripe in turn), and again 1
// ns after it is through with them. So the NIC never starves, and an endpoint that shares it and looks when it is idle,
// as the ranks of internal/lab/sim do, comes first: beside a Reduce-Scatter that always has something to send, an
// Allgather gets all that it asks for.
//
// A reduction goes as fast as its slowest contributor. In an Allgather of M chains just M ranks
// multicast at a time, and the contributions of these wait meanwhile: each lags behind the others
// by up to N. And if M chains send more than a link carries, results wait behind (M-1) N bytes of
// multicast in the queue of their owner's port. A Reduce-Scatter that goes on at full rate all the
// same takes windows (Config.Slots) of several N: the default is 4 N a stripe, 8 N in all at least.
// With less, both take turns, down to no gain at all from running them at once. So an Overlap has a
// window of the Allgather, too, which bounds that queue: by default 16 MiB over up to 64 chains.
// Where the windows of the reduction hold less, as with shards of 256 KiB, the Allgather's should
// be no more than that.
//
// Rows of 64 KiB a shard go to the stripes in turn (innetwork.BlockBytes). A shard of one row uses one stripe and one
// tree, and fills this tree's links between switches; an Allgather in the same tree then has half of them. Give both
// several trees: shards of several rows, and several subgroups.
package reduction
