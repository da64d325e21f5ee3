// Package session is the control connection between a switch and
// its members: admission, ports, the terms of a job, and the news that the
// other side is gone. It is TCP and never on the data path.
//
// A frame is a length (u32) and a JSON object of at most 64 KiB:
//
//  1. switch: greeting {version, sealed}; if sealed, the proof of a secret, and frames go in records
//  2. member: request {job, epoch, ranks, rank, mode, ...}
//  3. switch: offer {ports, one a stripe} or {error}
//  4. member: sockets {its own ports, the queue and the largest datagram of each}
//  5. switch, when all ranks of the job are there: note "ready" with the terms
//  6. either: notes "ping", "bye", "error"; switch: "drain"; a child switch: "below"
//
// The proof is the one in transport/identity, by TLS 1.3: the switch learns which tenant the member belongs to, and the
// member learns that the switch knows the same secret. Later frames go in the records of transport/record. Every wait
// is bounded. Bytes that are no frame end the connection.
//
// Seals have the keyed tags of datagrams, of keys from the same TLS session.
//
// The words are in docs/reference/glossary.md.
package session
