/* What the two halves of the reference plugin's CollNet share: reference_join.c
 * makes the group, reference_coll.c moves its bytes. */
#ifndef REFERENCE_COLL_H
#define REFERENCE_COLL_H

#include "reference.h"

enum { COLL_RANKS = 64 };

/* Before each piece: the call that it belongs to. So a rank with calls that
 * differ from the others' gives an error instead of wrong bytes. */
struct coll_header {
	uint32_t sequence;
	int32_t kind; /* ncclFunc_t */
	uint64_t size;
};

struct coll_piece {
	const void *out;
	void *in;
	size_t out_size, out_header, out_moved;
	size_t in_size, in_header, in_moved;
	struct coll_header header;
};

struct coll_op {
	struct ref_request request;
	uint32_t sequence;
	int kind, type, op;
	char *window;        /* allgather: where the window lies */
	size_t size;         /* bytes of the window */
	char *own, *result;  /* this rank's part, and where it goes or is summed */
	size_t own_size;
	char *staging;       /* the other ranks' parts of a sum */
	struct coll_piece pieces[COLL_RANKS];
};

struct coll_link {
	int fd;
	uint32_t sent, received; /* operations */
};

struct coll_comm {
	struct ref_comm comm;
	struct coll_comm *next; /* of all that are open */
	uint64_t id; /* of the communicator, 0 before v11 */
	int nranks, rank, error;
	uint32_t head, tail; /* oldest not complete, next free */
	struct coll_link links[COLL_RANKS];
	struct coll_op ops[ABI_REQUESTS];
	struct coll_op flushes[ABI_REQUESTS];
};

#endif
