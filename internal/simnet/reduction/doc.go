// Package reduction runs internal/inc, unchanged, over internal/simnet/network:
// an in-network Reduce-Scatter of P hosts on a fat tree in virtual time, alone
// or beside other traffic on the same NICs (paper 000, Insight 2 and appendix B).
//
// Every host has an inc.Member, and every switch of an aggregation tree an
// inc.Stage for each stripe. Stripe s uses multicast tree s modulo the number of
// trees, so that several roots share the work: a host sends its contributions
// to its leaf, a switch its partial sums to its parent in the tree, and a
// result goes down to its owner alone.
//
//	host --contribution--> leaf --partial sums--> ... --> root
//	host <--result-------- leaf <--result-------- ... <-- root
//
// What travels is real: elements, headers and sums, and every byte of every
// result is compared with reduce.Fold over all ranks' inputs in rank order. All
// inputs are windows of one vector of small numbers (see inputs), so a run of
// 1024 hosts takes no more memory for them than one of 4. Nothing here knows
// what a member sends or which of its contributions stay at home: it is asked.
//
// # The model
//
// Switches sum at line rate, as SHARP does: a contribution that has arrived
// costs no time, and the links to and from a switch are the network's.
// Config.SwitchCost and SwitchCostPerByte give each stage of a switch, which is
// one engine a stripe, a cost. Hosts' receive costs are the network's.
//
// A datagram is as large as Config.Chunk. One that is larger than the network's
// MTU is a train of packets; then fewer events stand for the same bytes: chunks
// of 64 KiB are the coarse mode. All datagrams are unreliable, as in life: members recover
// what is lost.
//
// # Pacing
//
// A host sends runs of its member while little of what it has sent still waits
// in the NIC (Config.Ahead), and goes on when that is nearly through. So the
// NIC never idles, and what another endpoint of the same host sends waits for
// at most that: beside an Allgather, the latter gets what it asks for.
//
// A reduction goes as fast as its slowest contributor. In an Allgather of M
// chains M ranks send at a time, each at up to 1/M of what all can receive, and the
// contributions of just these wait. That a Reduce-Scatter goes on at full rate
// meanwhile takes that the others may be ahead of them by a shard: windows that
// hold N bytes and more (the default, see Config.Slots), or so many chains that 1/M is small.
package reduction
