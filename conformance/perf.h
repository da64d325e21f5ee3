/* Perf mode: the measurements, the place of a round's figures, and the contestants. */
#ifndef PERF_H
#define PERF_H

#include "process.h"

enum { PERF_SIZES = 12, PERF_IN_FLIGHT = 8 };
enum { PERF_POOL = 256 << 20 };	/* bytes of the buffer on each side */

enum figure { LATENCY, BANDWIDTH, ALLGATHER, REDUCE_SCATTER, ALLREDUCE, FIGURES };

/* perf_sizes.c */
extern const size_t perf_sizes[PERF_SIZES];	/* bytes, 1 to 64 Mi */
int perf_repeats(size_t bytes);	/* how many messages or operations of a size one round times */

/* Microseconds a message or an operation; 0: not measured. Shared memory: rank
 * 0 writes, the runner reads. */
struct perf_round {
	double us[FIGURES][PERF_SIZES];
};

/* The measurements, as cases that only perf mode runs; the area is a perf_round. */
extern const struct test perf_net, perf_coll;

/* The same as perf_net over sockets without a plugin: TCP on loopback, polled,
 * one stream for small messages and several for large ones. Result: 0, or -1
 * when it did not end within timeout seconds or a socket failed. */
int perf_tcp(struct perf_round *round, double timeout);

#endif
