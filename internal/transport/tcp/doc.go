// Package tcp is the fabric.Streams of hosts on a network: one TCP connection
// between every two ranks. The direct Reduce-Scatter, which sends each shard
// to its owner alone, runs over it; it shares no socket with the multicast
// fabric, so that neither waits for the other.
//
// The words are in docs/reference/glossary.md.
package tcp
