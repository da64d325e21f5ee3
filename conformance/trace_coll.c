/* CollNet operations as NCCL was recorded to cut them: traces/collnet.h. */
#include "case_coll.h"

enum trace { ALLGATHER, REDUCE_SCATTER, ALLREDUCE, CHAIN, FLUSH, REGISTERED, SPLIT };
enum mode { STAGED, FLUSHED, WHOLE, IN_PLACE };

struct windows {
	enum trace trace;
	int ranks, func;
	size_t bytes, window;
	enum mode mode;
};

#define WINDOWS(trace, ranks, func, bytes, window, mode) { trace, ranks, func, bytes, window, mode },
static const struct windows recorded[] = {
#include "traces/collnet.h"
};

/* One comm for all operations of a trace, as in the recording. */
static void replay(struct rank *r, enum trace trace)
{
	struct group g;
	int ran = 0;

	group_init(r);
	g = group_open(r);
	for (size_t i = 0; i < sizeof(recorded) / sizeof(recorded[0]); i++) {
		const struct windows *w = &recorded[i];
		struct plan p = {
			.func = w->func, .bytes = w->bytes, .window = w->window, .depth = 8, .type = ABI_FLOAT32,
			.registered = w->mode >= WHOLE, .in_place = w->mode == IN_PLACE, .flush = w->mode == FLUSHED,
			.stride = 1 << 20, .registrations = 4,
		};

		if (w->trace != trace || w->ranks != r->ranks ||
		    (w->func != ABI_ALLGATHER && !coll_supports(r, ABI_FLOAT32, ABI_SUM)))
			continue;
		group_run(&g, &p);
		ran++;
	}
	if (!ran)
		not_offered("reduceSupport refuses sums of float32");
	group_close(&g);
	group_finalize(r);
}

#define TRACE(id, n, name, trace, what) \
	CASE(trace_##id##_##n, name, COLL, n, n, COLL_BYTES, what) { replay(r, trace); }
#define BOTH(id, name, trace, what) TRACE(id, 2, name, trace, what) TRACE(id, 4, name, trace, what)

BOTH(ag, "trace.collnet-ag", ALLGATHER, "Allgather as NCCL 2.30.7 cut it, staged")
BOTH(rs, "trace.collnet-rs", REDUCE_SCATTER, "Reduce-Scatter as NCCL 2.30.7 cut it, staged")
BOTH(ar, "trace.collnet-ar", ALLREDUCE, "Allreduce as NCCL 2.30.7 cut it, staged")
BOTH(chain, "trace.collnet-chain", CHAIN, "CollNetChain's Allreduce as NCCL 2.30.7 cut it")
BOTH(flush, "trace.collnet-flush", FLUSH, "with a flush of each window, as NCCL 2.30.7 asked")
BOTH(reg, "trace.collnet-registered", REGISTERED, "whole user buffers, in place and not, as in NCCL 2.30.7")
BOTH(split, "trace.collnet-registered-split", SPLIT, "user buffers cut at a small maxCollBytes, as in NCCL 2.30.7")
