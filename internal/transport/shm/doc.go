// Package shm carries the traffic between ranks of one host through a region of shared memory that
// all of them map: a root publishes a chunk once and every other rank reads it from there, so the
// "multicast" of Khalilov et al. (SC24) is one copy in and one copy out a reader. The fabric is
// lossless and keeps what a rank has not asked for yet, hence no barrier, repair or handshake.
//
// The region is a memfd: it has no name in any file system, and the kernel
// frees it with the last process that maps it, however that process ended.
//
//	page 0      header: magic, version, job, layout
//	bells       one a rank of the gather: a word to sleep on and a flag
//	names       one a rank: where its process has a word of its memory
//	rings       one a rank: head, one tail a reader
//	mailboxes   one for each edge of the circulant graph
//	slots       of the rings: header, length, chunk
//	reductions  streams: a bell a rank; head and tail of each ordered pair of ranks; their bytes
//	messages    streams, likewise
//
// Every counter is a cumulative 64-bit position in a cache line of its own and
// has one writer. What other processes wrote is checked before it is used as
// an index, so that a peer gone mad breaks its own path and nothing else.
//
// The words are in docs/reference/glossary.md.
package shm
