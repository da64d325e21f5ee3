// Package simnet runs internal/core for N ranks over a simulated network in
// virtual time. One seeded source of randomness decides everything, so that a
// run that fails is replayed from its seed, event by event.
//
// A rank is driven as internal/engine drives one: real bytes in real buffers,
// the same order of calls. What a run must satisfy is checked after every
// event (see check.go): no wrong byte, nothing outside its buffer, no
// operation lost or finished twice, no hang, traffic within its law.
package simnet
