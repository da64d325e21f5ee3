// Package session is the control connection between an aggregation node and
// its members: admission, ports, the terms of a job, and the news that the
// other side is gone. It is TCP and never on the data path.
//
// A frame is a length (u32) and a JSON object of at most 64 KiB:
//
//  1. node: greeting {version, sealed}; if sealed, the proof of a secret, and frames go in records
//  2. member: request {job, epoch, ranks, rank, mode, ...}
//  3. node: offer {ports, one a stripe} or {error}
//  4. member: sockets {its own ports, the queue and the largest datagram of each}
//  5. node, when all ranks of the job are there: note "ready" with the terms
//  6. either: notes "ping", "bye", "error"; node: "drain"; a child node: "below"
//
// The proof is that of transport/identity, TLS 1.3, by which the node learns whose the member is, and the member that the
// node knows the same secret; what follows goes in the records of transport/record. Every wait is bounded; what is no
// frame ends the connection.
//
// Seals have the keyed tags of datagrams, of keys from the same TLS session.
//
// The words are in docs/reference/glossary.md.
package session
