/* A CollNet comm as NCCL makes it, and one collective operation cut into windows
 * as NCCL cuts it, posted in order and checked byte by byte. */
#ifndef CASE_COLL_H
#define CASE_COLL_H

#include "harness.h"

enum { MAX_DEPTH = 64 };

struct group {
	struct rank *r;
	void *comm;
	uint64_t key;			/* tells its data from another group's */
};

/* Net and CollNet initialised, as NCCL does both before any connection. */
void group_init(struct rank *r);
/* listen, handles by exchange, connect; barriers among all ranks. */
struct group group_open(struct rank *r);
void group_close(struct group *g);
void group_finalize(struct rank *r);

/* One operation. In staging the windows go through slots of a region that is
 * registered twice, sends in its first half and receives in its second; a
 * registered operation uses the user's buffers themselves. */
struct plan {
	int func;			/* ABI_ALLGATHER, ABI_REDUCE_SCATTER, ABI_ALLREDUCE */
	size_t bytes;			/* a rank: of its slot; of an Allreduce: of the whole */
	size_t window;			/* bytes; the last one may be shorter */
	int depth;			/* windows in flight at most, and slots */
	int type, op;			/* of sums; Allgather moves bytes */
	bool registered, in_place;	/* in_place: registered only */
	bool flush;			/* iflush of the received memory, as with GPU memory */
	size_t stride;			/* of staging slots, 0: window and a guard */
	int registrations;		/* of the staging region; 0: two */
	enum rule rule;			/* of wrong bytes; 0: what their place says */
};

/* Runs the operation on all ranks of the group and checks every byte. */
void group_run(struct group *g, const struct plan *p);
/* The same in steps, for cases that interleave: operation_turn is one turn of
 * NCCL's progress loop and returns true while it has more to do. */
struct operation;
struct operation *operation_new(struct group *g, const struct plan *p);
bool operation_turn(struct operation *o, bool *busy);
int operation_in_flight(const struct operation *o);
void operation_check(struct operation *o);
/* Posts all windows that it can and polls so many times: none may be done. */
void operation_patience(struct operation *o, int polls);
/* Posts one window and polls until it is done, a call gives an error, which it
 * returns, or until the time, and then success. */
int operation_until_end(struct group *g, const struct plan *p, double until, bool *finished);
/* The same where a rank is dead, so that it cannot be done. */
int operation_until_error(struct group *g, const struct plan *p, double until);
void operation_free(struct operation *o);	/* deregisters */
void operation_abandon(struct operation *o);	/* only the memory, after group_close */

/* Elements (case_coll_element.c): data with sums that are exact in each type. */
size_t type_size(int type);
const char *type_name(int type);
const char *op_name(int op);
/* Elements [0, count) of rank's input, and of the result over ranks ranks. */
void input_fill(void *data, size_t count, int type, int op, int rank, uint64_t key);
void result_fill(void *data, size_t count, int type, int op, int ranks, uint64_t key);
/* Exactly representable values only. */
void element_store(void *data, size_t i, int type, double value);
double element_load(const void *data, size_t i, int type);

/* first byte in which got and want differ, or bytes */
size_t first_difference(const void *got, const void *want, size_t bytes);
bool coll_supports(struct rank *r, int type, int op);

#endif
