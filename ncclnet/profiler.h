/* What NCCL has done last in this process, where this library is NCCL's profiler; for profiler.go. */
#ifndef MCAST_NCCL_PROFILER_H
#define MCAST_NCCL_PROFILER_H

#include <stdint.h>

#include "mcast.h"

enum { PROFILER_OPERATIONS = 512, PROFILER_MESSAGES = 1024 }; /* how many are remembered, the newest */

/* A collective, send or receive that NCCL was asked for. Moments: ns of CLOCK_MONOTONIC; 0: it did not come to it. */
struct profiler_operation {
	uint64_t number; /* in this process, from 1 on; 0: there is none */
	uint64_t communicator;
	int rank, ranks;
	uint64_t sequence; /* NCCL's, by communicator and function; of collectives */
	uint64_t count;    /* of elements */
	int other;         /* root, or peer */
	int channels;
	char name[16], type[16], algorithm[24], protocol[16];
	/* NCCL takes it; has launched its kernel; the first of its proxies comes to its turn; the last has ended, unless some
	 * run. */
	uint64_t posted, launched, begun, ended;
	int proxies, running;
};

struct profiler_message {
	uint64_t number;    /* as of operations */
	uint64_t operation; /* its number */
	struct mcast_net_event is;
};

/* Copies the remembered operations and messages, in any order, and returns CLOCK_MONOTONIC, ns. */
uint64_t profiler_copy(struct profiler_operation operations[PROFILER_OPERATIONS],
	struct profiler_message messages[PROFILER_MESSAGES]);

#endif
