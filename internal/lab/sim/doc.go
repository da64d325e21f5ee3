// Package sim runs internal/protocol/multicast for N ranks over a simulated network
// (internal/lab/sim/network) in virtual time. One seeded source of randomness
// decides everything, so that a run that fails is replayed from its seed, event
// by event.
//
// A rank is driven as internal/engine drives one: the same order of calls, real
// bytes in real buffers (or, at scale, a checksum of them). simnet keeps no state
// of the protocol: what is sent, asked for, waited for and when is the core's
// alone. What a run must satisfy is checked after every event (see check.go): no
// wrong byte, nothing outside its buffer, no buffer used after its release, no
// operation lost or finished twice, no hang, traffic within its law. Paths may die for good (dead.go):
// then each operation ends all the same, well or with an error. Strangers may send (forge.go):
// then nothing changes.
//
// Random draws a scenario from a seed, and Cluster makes one of equal operations
// at any size.
package sim
