/* coll.h: CollNet's requests, which C polls and Go completes. */
#ifndef MCAST_COLL_H
#define MCAST_COLL_H

#include <stdint.h>
#include <stddef.h>

#include "abi.h"

/* The states of a request. */
enum { COLL_FREE = 0, COLL_POSTED = 1, COLL_DONE = 2, COLL_FAILED = 3 };

struct coll_comm;
struct region;

struct coll_request {
	uint32_t state; /* written by Go once, with release; read by C with acquire */
	int result;     /* of COLL_FAILED, an nccl_result */
	size_t size;    /* bytes that it brings this rank */
	struct coll_comm *comm;
	struct region *uses[2]; /* the memory that the operation reads and writes until it has ended; may be NULL */
};

/* What a window is about: see CollNet's iallgather. */
struct coll_window {
	size_t shard;  /* bytes of a rank's slot */
	size_t offset; /* of the window in all slots */
	size_t bytes;  /* of the window */
};

#endif
