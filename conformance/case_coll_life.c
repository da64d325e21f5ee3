/* CollNet: operations in flight, registrations, several comms, and closing. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "case_coll.h"

static const struct plan small = { .func = ABI_ALLGATHER, .bytes = 10007, .window = 4096, .depth = 8 };

/* Rank 0 posts a window that needs all ranks' bytes before any other rank
 * posts: however often it polls, the window cannot be done. */
CASE(coll_early, "coll.early-done", COLL, 2, 4, COLL_EARLY, "a window whose other ranks have not posted is not done")
{
	const struct plan plans[] = {
		{ .func = ABI_ALLGATHER, .bytes = 1000, .window = 65536, .depth = 8 },
		{ .func = ABI_REDUCE_SCATTER, .bytes = 1000, .window = 65536, .depth = 8, .type = ABI_FLOAT32 },
		{ .func = ABI_ALLREDUCE, .bytes = 1000, .window = 65536, .depth = 8, .type = ABI_FLOAT32 },
	};
	struct group g;

	group_init(r);
	g = group_open(r);
	for (int i = 0; i < 3; i++) {
		struct operation *o;
		bool busy = true, more = true;

		if (plans[i].func != ABI_ALLGATHER && !coll_supports(r, ABI_FLOAT32, ABI_SUM))
			continue;
		o = operation_new(&g, &plans[i]);
		if (r->rank == 0) {
			under(COLL_EARLY);
			operation_patience(o, 2000);
			flag_raise(r, 0, (uint64_t)i + 1);
		} else {
			flag_wait(r, 0, (uint64_t)i + 1);
		}
		while (more) {
			more = operation_turn(o, &busy);
			breathe(r, busy);
		}
		operation_check(o);
		operation_free(o);
	}
	group_close(&g);
	group_finalize(r);
}

CASE(coll_requests, "coll.requests", COLL, 2, 4, COLL_REQUESTS,
	"48 windows offered at once: a request each, or NULL and the same call again")
{
	struct group g;
	struct operation *o;
	bool busy = true;
	int most = 0;

	group_init(r);
	g = group_open(r);
	for (int i = 0; i < 2; i++) {
		o = operation_new(&g, &(struct plan){ .func = i ? ABI_REDUCE_SCATTER : ABI_ALLGATHER, .bytes = 40000,
			.window = 1000, .depth = 48, .type = ABI_INT8 });
		while (operation_turn(o, &busy)) {
			most = operation_in_flight(o) > most ? operation_in_flight(o) : most;
			breathe(r, busy);
		}
		operation_check(o);
		operation_free(o);
		if (!coll_supports(r, ABI_INT8, ABI_SUM))
			break;
	}
	note("%d in flight at most", most);
	group_close(&g);
	group_finalize(r);
}

CASE(coll_refill, "coll.send-slot-refilled", COLL, 2, 4, COLL_EARLY,
	"send slots are filled anew as soon as a window is done")
{
	struct group g;

	group_init(r);
	g = group_open(r);
	for (int i = 0; i < 20; i++)
		group_run(&g, &(struct plan){ .func = ABI_ALLGATHER, .bytes = 300000, .window = 100000, .depth = 2 });
	group_close(&g);
	group_finalize(r);
}

CASE(coll_memory, "coll.memory", COLL, 2, 2, COLL_MEMORY,
	"one region registered four times, nested ones, and in another order back")
{
	enum { SIZE = 16 << 20 };
	struct buffer region;
	struct group g;
	void *mhandles[4], *inner = NULL, *byte = NULL;

	group_init(r);
	g = group_open(r);
	region = buffer_new(SIZE, 0);
	for (int i = 0; i < 4; i++) {
		mhandles[i] = NULL;
		OK(coll_reg_mr(&r->coll, g.comm, region.data, SIZE, ABI_PTR_HOST, &mhandles[i]));
		EXPECT(mhandles[i], "regMr: expected a handle, got NULL");
	}
	OK(coll_reg_mr(&r->coll, g.comm, region.data + 4096, 4096, ABI_PTR_HOST, &inner));
	OK(coll_reg_mr(&r->coll, g.comm, region.data + SIZE - 1, 1, ABI_PTR_HOST, &byte));
	EXPECT(inner && byte, "regMr: expected a handle, got NULL");
	OK(coll_dereg_mr(&r->coll, g.comm, mhandles[1]));
	group_run(&g, &small);
	OK(coll_dereg_mr(&r->coll, g.comm, inner));
	OK(coll_dereg_mr(&r->coll, g.comm, mhandles[3]));
	OK(coll_dereg_mr(&r->coll, g.comm, mhandles[0]));
	group_run(&g, &small);
	OK(coll_dereg_mr(&r->coll, g.comm, byte));
	OK(coll_dereg_mr(&r->coll, g.comm, mhandles[2]));
	buffer_free(&region);
	group_close(&g);
	group_finalize(r);
}

static _Atomic int registering;

static void register_all_the_time(struct rank *r, void *arg)
{
	struct group *g = arg;
	struct buffer region = buffer_new(1 << 20, 0);

	while (registering) {
		void *mhandle = NULL;

		OK(coll_reg_mr(&r->coll, g->comm, region.data, region.size, ABI_PTR_HOST, &mhandle));
		OK(coll_dereg_mr(&r->coll, g->comm, mhandle));
		breathe(r, false);
	}
	buffer_free(&region);
}

CASE(coll_register_busy, "coll.memory-while-busy", COLL, 2, 2, COLL_MEMORY,
	"regMr and deregMr on another thread while windows are in flight")
{
	struct group g;

	group_init(r);
	g = group_open(r);
	registering = 1;
	thread_start(r, 1, register_all_the_time, &g);
	for (int i = 0; i < 20; i++)
		group_run(&g, &(struct plan){ .func = ABI_ALLGATHER, .bytes = 100003, .window = 4096, .depth = 8 });
	registering = 0;
	thread_join_all(r);
	group_close(&g);
	group_finalize(r);
}

CASE(coll_comms, "coll.several-comms", COLL, 2, 4, COLL_SEPARATE, "three comms of the same ranks, in flight together")
{
	enum { COMMS = 3 };
	struct group g[COMMS];
	struct operation *o[COMMS];
	bool sums, busy, more;

	group_init(r);
	sums = coll_supports(r, ABI_FLOAT32, ABI_SUM);
	for (int i = 0; i < COMMS; i++)
		g[i] = group_open(r);
	under(COLL_SEPARATE);
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < COMMS; i++)
			o[i] = operation_new(&g[i], &(struct plan){ .func = sums && round ? ABI_REDUCE_SCATTER : ABI_ALLGATHER,
				.bytes = 50000, .window = 4096, .depth = 8, .type = ABI_FLOAT32, .rule = COLL_SEPARATE });
		do {
			more = false;
			for (int i = 0; i < COMMS; i++)	/* ranks take them in different orders */
				more |= operation_turn(o[(i + r->rank) % COMMS], &busy);
			breathe(r, busy);
		} while (more);
		for (int i = 0; i < COMMS; i++) {
			operation_check(o[i]);
			operation_free(o[i]);
		}
	}
	group_close(&g[1]);
	group_run(&g[0], &small);
	group_close(&g[0]);
	group_run(&g[2], &small);
	group_close(&g[2]);
	group_finalize(r);
}

CASE(coll_flush, "coll.flush", COLL, 2, 3, COLL_FLUSH, "iflush of each window that received something")
{
	struct group g;

	group_init(r);
	g = group_open(r);
	group_run(&g, &(struct plan){ .func = ABI_ALLGATHER, .bytes = 524288, .window = 131072, .depth = 8, .flush = true });
	if (coll_supports(r, ABI_FLOAT32, ABI_SUM)) {
		group_run(&g, &(struct plan){ .func = ABI_REDUCE_SCATTER, .bytes = 524288, .window = 131072, .depth = 8,
			.type = ABI_FLOAT32, .flush = true });
		group_run(&g, &(struct plan){ .func = ABI_ALLREDUCE, .bytes = 524288, .window = 131072, .depth = 8,
			.type = ABI_FLOAT32, .flush = true });
	}
	group_close(&g);
	group_finalize(r);
}

CASE(coll_close_busy, "coll.close-in-flight", COLL, 2, 3, COLL_CLOSE,
	"closeColl with windows in flight, as an abort does, then a new comm")
{
	struct group g;
	struct operation *o;
	bool busy = true;

	group_init(r);
	g = group_open(r);
	o = operation_new(&g, &(struct plan){ .func = ABI_ALLGATHER, .bytes = 1 << 20, .window = 65536, .depth = 8 });
	if (r->rank == 0)		/* the others never post: nothing of it can be done */
		operation_turn(o, &busy);
	barrier(r);
	group_close(&g);
	barrier(r);
	operation_abandon(o);
	g = group_open(r);
	group_run(&g, &small);
	group_close(&g);
	group_finalize(r);
}

CASE(coll_abort, "coll.abort", COLL, 2, 3, COLL_ABORT,
	"buffers freed with windows in flight, then the others post, then closeColl")
{
	const struct plan p = { .func = ABI_ALLGATHER, .bytes = 4 << 20, .window = 1 << 20, .depth = 4 };
	struct group g;
	struct operation *o;
	bool busy = true, finished;

	group_init(r);
	g = group_open(r);
	under(COLL_ABORT);
	o = operation_new(&g, &p);
	if (r->rank == 0) {
		operation_turn(o, &busy);
		operation_free(o);	/* its pages are gone: who still reads or writes them is killed */
	}
	barrier(r);
	if (r->rank != 0)
		operation_until_end(&g, &p, now() + 0.2, &finished);	/* its end may be any */
	barrier(r);
	group_close(&g);
	barrier(r);
	if (r->rank != 0)
		operation_abandon(o);
	g = group_open(r);
	group_run(&g, &small);
	group_close(&g);
	group_finalize(r);
}

CASE(coll_refused, "coll.refused-call", COLL, 2, 3, COLL_REFUSED,
	"40 windows of half elements, deregMr of their buffers, then a good one")
{
	enum { SLOT = 6 };	/* bytes a rank: one and a half floats */
	struct buffer send, recv;
	struct group g;
	void *from = NULL, *to = NULL;
	bool finished;
	int result;

	group_init(r);
	g = group_open(r);
	if (!coll_supports(r, ABI_FLOAT32, ABI_SUM))
		not_offered("no sums of float32");
	under(COLL_REFUSED);
	send = buffer_new((size_t)r->ranks * SLOT, 0);
	recv = buffer_new(SLOT, 0);
	OK(coll_reg_mr(&r->coll, g.comm, send.data, send.size, ABI_PTR_HOST, &from));
	OK(coll_reg_mr(&r->coll, g.comm, recv.data, recv.size, ABI_PTR_HOST, &to));
	for (int i = 0; i < 40; i++) {
		struct abi_part part = { .mhandle = from, .address = send.data, .size = send.size };
		void *request = NULL;

		if (coll_ireduce_scatter(&r->coll, g.comm, 1, &part, recv.data, SLOT, 0, send.size, ABI_FLOAT32, ABI_SUM,
			to, &request) == ABI_SUCCESS)
			not_offered("half elements are not refused");
	}
	OK(coll_dereg_mr(&r->coll, g.comm, from));
	OK(coll_dereg_mr(&r->coll, g.comm, to));
	barrier(r);	/* a comm that ended takes the others with it */
	result = operation_until_end(&g, &small, now() + r->timeout / 2, &finished);
	EXPECT(result == ABI_SUCCESS && finished, "expected the comm to go on, got %d (%s)", result, result_name(result));
	group_close(&g);
	group_finalize(r);
}

CASE(coll_killed, "coll.rank-killed", COLL, 2, 4, COLL_PEER_LOST,
	"a rank dies with windows in flight: test gives an error on the others")
{
	struct plan p = { .func = ABI_ALLGATHER, .bytes = 1000, .window = 65536, .depth = 8 };
	double until = now() + r->timeout / 2;
	struct group g;
	int result = ABI_SUCCESS;

	group_init(r);
	g = group_open(r);
	group_run(&g, &p);
	barrier(r);
	if (r->rank == r->ranks - 1)
		die(r);
	under(COLL_PEER_LOST);
	result = operation_until_error(&g, &p, until);
	EXPECT(result != ABI_SUCCESS, "test: expected an error within %.0f s of a rank's death, got none", r->timeout / 2);
	under(COLL_CLOSE);
	OK(coll_close(&r->coll, g.comm));
}

CASE(coll_again, "coll.init-again", COLL, 2, 3, COLL_AGAIN,
	"three communicators one after another, each with init and finalize")
{
	for (int i = 0; i < 3; i++) {
		struct group g;

		group_init(r);
		g = group_open(r);
		group_run(&g, &small);
		group_close(&g);
		group_finalize(r);
		barrier(r);
	}
}
