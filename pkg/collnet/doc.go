// Package collnet is collectives among a fixed group of ranks, one process each: Allgather and
// Broadcast by multicast, Reduce-Scatter directly or through a switch that adds, and Allreduce,
// Reduce and Barrier made of them. On one host they go through shared memory.
//
// Every rank calls Join with the same address and size:
//
//	g, err := collnet.Join(ctx, "host0:29500", rank, size, collnet.Options{})
//	err = g.Allgather(ctx, send, recv)
//
// Programs that bring an exchange of their own (MPI, a key-value store) call Listen, hand every
// rank's Endpoint.Blob to all ranks, and call Endpoint.Join.
//
// # Order
//
// All ranks call the same operations in the same order. Allgather, Broadcast and Barrier form one
// order, Reduce-Scatter and Reduce another, and the two never wait for each other: they load
// opposite directions of a link (Khalilov et al., SC24, Insight 2). An Allreduce takes a place in
// both. Ranks that call different things get a MismatchError. Goroutines may share a group as long
// as the order is the same on all ranks.
//
// # Buffers
//
// Buffers are bytes in the machine's byte order; Bytes shows a slice of numbers as such. They
// belong to the group until the operation is done, or Close or Abort has returned.
//
// # Contexts
//
// A ctx bounds how long a call waits, never the operation: what all ranks have begun cannot be
// taken back by one. Where ctx ends first, the call returns ctx's error, the operation goes on, and
// its buffers still belong to the group. With a ctx that has ended already nothing is begun.
//
// # Errors
//
// Once something has gone wrong every operation of the group ends, on all ranks, with the same
// cause: a *RankError names the rank that died, left or gave up, a *MismatchError two ranks that
// called different things, a *PathError two ranks between which data do not pass. A *ClosedError says
// that this rank has closed the group itself. After an *ArgumentError or *BusyError nothing was
// begun and the group goes on. A rank is as late as it likes: an operation has no time limit of its
// own (Options.Timeout is about ranks and paths that give no sign of life).
//
// The words are in docs/reference/glossary.md.
package collnet
