// Package session is the control connection between an aggregation node and
// its members: admission, ports, the terms of a job, and the news that the
// other side is gone. It is TCP and never on the data path.
//
// A frame is a length (u32), a JSON object of at most 64 KiB and, between
// parties that share a secret, an HMAC-SHA256 over the number of the frame and the object:
//
//  1. node: greeting {version, nonce, sealed}
//  2. member: request {job, epoch, ranks, rank, mode, nonce, key, ...}
//  3. node: offer {ports, one a stripe} or {error}
//  4. member: sockets {its own ports, the queue and the largest datagram of each}
//  5. node, when all ranks of the job are there: note "ready" with the terms
//  6. either: notes "ping", "bye", "error"; node: "drain"; a child node: "below"
//
// Both prove that they know the secret by the HMAC, whose keys depend on the
// nonces of both. Every wait is bounded; what is no frame ends the connection.
//
// Seals have the keyed tags of datagrams, made from the same secret.
//
// The words are in docs/GLOSSARY.md.
package session
