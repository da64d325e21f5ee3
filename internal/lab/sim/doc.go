// Package sim runs internal/protocol/multicast for N ranks over a simulated network
// (internal/lab/sim/network) in virtual time. One seeded source of randomness
// decides everything, so that a run that fails is replayed from its seed, event
// by event.
//
// A rank is the engine that ships, internal/engine.Gather, with a clock of virtual time (rank.go)
// over a fabric that is the simulated network (fabric.go): real bytes in real buffers or, at scale,
// memory that nobody touches and a checksum. This package keeps no state of the protocol: the code
// that ships alone decides what to send, ask for and wait for, and when. The conditions that a run
// must satisfy are checked after every event (check.go): no wrong byte, nothing outside its buffer,
// no buffer used after its release, no operation lost or finished twice, no hang, traffic within
// its law. Paths may die for good (dead.go): then each operation ends all the same, well or with an
// error. Strangers may send (forge.go): then nothing changes.
//
// Random draws a scenario from a seed, and Cluster makes one of equal operations
// at any size.
//
// The words are in docs/reference/glossary.md.
package sim
