/* CollNet: Allgather and Reduce-Scatter in windows, as NCCL cuts them. */
#include "case_coll.h"

static void run_plans(struct rank *r, const struct plan *plans, size_t n)
{
	struct group g;

	group_init(r);
	g = group_open(r);
	for (size_t i = 0; i < n; i++)
		if (plans[i].func == ABI_ALLGATHER || coll_supports(r, plans[i].type, plans[i].op))
			group_run(&g, &plans[i]);
	group_close(&g);
	group_finalize(r);
}

#define RUN(plans) run_plans(r, plans, sizeof(plans) / sizeof((plans)[0]))
#define GATHER(...) { .func = ABI_ALLGATHER, __VA_ARGS__ }
#define SCATTER(...) { .func = ABI_REDUCE_SCATTER, __VA_ARGS__ }

CASE(coll_gather_small, "coll.allgather-one-window", COLL, 2, 4, COLL_OWN_PART,
	"all ranks' bytes in one window, 0 to 64 KiB a rank")
{
	static const size_t sizes[] = { 0, 1, 2, 3, 7, 8, 63, 64, 65, 511, 512, 4095, 4097, 65535, 65536 };

	struct group g;

	group_init(r);
	g = group_open(r);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		group_run(&g, &(struct plan)GATHER(.bytes = sizes[i], .window = 8 * 131072, .depth = 8));
	group_close(&g);
	group_finalize(r);
}

CASE(coll_gather_windows, "coll.allgather-windows", COLL, 2, 4, COLL_WINDOW,
	"windows within a slot, across slots, 8 and 32 in flight")
{
	static const struct plan plans[] = {
		GATHER(.bytes = 65536, .window = 4096, .depth = 8),
		GATHER(.bytes = 4096, .window = 4096, .depth = 8),
		GATHER(.bytes = 65536, .window = 4096, .depth = 32),
		GATHER(.bytes = 1000, .window = 4096, .depth = 8),
		GATHER(.bytes = 100003, .window = 4096, .depth = 8),
		GATHER(.bytes = 10007, .window = 1001, .depth = 32),
		GATHER(.bytes = 5, .window = 3, .depth = 8),
		GATHER(.bytes = 1, .window = 1, .depth = 8),
		GATHER(.bytes = 3 << 20, .window = 8 * 131072, .depth = 8),	/* 8 channels of 128 KiB */
	};

	RUN(plans);
}

CASE(coll_straddling, "coll.straddling", COLL, 2, 4, COLL_STRADDLING,
	"windows of several ranks' bytes, begun and ended within a slot")
{
	static const struct plan plans[] = {
		GATHER(.bytes = 1000, .window = 100000, .depth = 1, .registered = true, .in_place = true),
		GATHER(.bytes = 1000, .window = 1700, .depth = 8, .registered = true, .in_place = true),
		GATHER(.bytes = 1000, .window = 1700, .depth = 8),
		GATHER(.bytes = 1, .window = 2, .depth = 8),
		GATHER(.bytes = 999, .window = 1001, .depth = 8),
	};

	RUN(plans);
}

CASE(coll_empty_slot, "coll.empty-slot", COLL, 2, 4, COLL_EMPTY_SLOT, "windows that the own slot does not touch")
{
	static const struct plan plans[] = {
		GATHER(.bytes = 65536, .window = 16384, .depth = 8),
		GATHER(.bytes = 65536, .window = 16384, .depth = 8, .registered = true),
		SCATTER(.bytes = 65536, .window = 16384, .depth = 8, .type = ABI_FLOAT32),
		SCATTER(.bytes = 65536, .window = 16384, .depth = 8, .type = ABI_FLOAT32, .registered = true),
	};

	RUN(plans);
}

CASE(coll_guards, "coll.guards", COLL, 2, 4, COLL_GUARDS, "nothing is written beside a window")
{
	static const struct plan plans[] = {
		GATHER(.bytes = 1001, .window = 1 << 20, .depth = 8),
		GATHER(.bytes = 10007, .window = 1001, .depth = 8),
		SCATTER(.bytes = 1001, .window = 1 << 20, .depth = 8, .type = ABI_INT8),
		SCATTER(.bytes = 10004, .window = 1004, .depth = 8, .type = ABI_FLOAT32),
		{ .func = ABI_ALLREDUCE, .bytes = 1004, .window = 1 << 20, .depth = 8, .type = ABI_FLOAT32 },
	};

	RUN(plans);
}

CASE(coll_completion, "coll.completion", COLL, 2, 4, COLL_COMPLETION,
	"all windows are done, on all ranks, in many operations")
{
	static const struct plan plans[] = {
		GATHER(.bytes = 20000, .window = 4096, .depth = 8),
		GATHER(.bytes = 20000, .window = 4096, .depth = 1),
		GATHER(.bytes = 20000, .window = 40000, .depth = 8),
		SCATTER(.bytes = 20000, .window = 4096, .depth = 8, .type = ABI_FLOAT32),
		{ .func = ABI_ALLREDUCE, .bytes = 20000, .window = 4096, .depth = 8, .type = ABI_FLOAT32 },
		GATHER(.bytes = 0, .window = 4096, .depth = 8),
		GATHER(.bytes = 20000, .window = 4096, .depth = 8),
	};

	RUN(plans);
}

CASE(coll_gather_large, "coll.allgather-large", COLL, 2, 2, COLL_BYTES,
	"windows of 4 MiB (8 channels of 512 KiB), 8 in flight")
{
	static const struct plan plans[] = {
		GATHER(.bytes = 20 << 20, .window = 4 << 20, .depth = 8),
		GATHER(.bytes = (5 << 20) + 1234, .window = 4 << 20, .depth = 8),
	};

	RUN(plans);
}

CASE(coll_gather_registered, "coll.allgather-registered", COLL, 2, 4, COLL_IN_PLACE,
	"whole user buffers, in place and not; cut at 3 000 000 bytes")
{
	static const struct plan plans[] = {
		GATHER(.bytes = 512, .window = (size_t)1 << 29, .depth = 1, .registered = true),
		GATHER(.bytes = 512, .window = (size_t)1 << 29, .depth = 1, .registered = true, .in_place = true),
		GATHER(.bytes = 1000003, .window = (size_t)1 << 29, .depth = 1, .registered = true),
		GATHER(.bytes = 1000003, .window = (size_t)1 << 29, .depth = 1, .registered = true, .in_place = true),
		GATHER(.bytes = 4 << 20, .window = 3000000, .depth = 6, .registered = true),
		GATHER(.bytes = 4 << 20, .window = 3000000, .depth = 6, .registered = true, .in_place = true),
		GATHER(.bytes = 700001, .window = 3000000, .depth = 8, .registered = true),
		GATHER(.bytes = 333, .window = 100, .depth = 8, .registered = true, .in_place = true),
	};

	RUN(plans);
}

CASE(coll_scatter_windows, "coll.reduce-scatter-windows", COLL, 2, 4, COLL_SUMS,
	"windows within a slot, across slots, 8 and 32 in flight")
{
	static const struct plan plans[] = {
		SCATTER(.bytes = 0, .window = 4096, .depth = 8, .type = ABI_FLOAT32),
		SCATTER(.bytes = 4, .window = 4096, .depth = 8, .type = ABI_FLOAT32),
		SCATTER(.bytes = 512, .window = 1 << 20, .depth = 8, .type = ABI_FLOAT32),
		SCATTER(.bytes = 4096, .window = 4096, .depth = 8, .type = ABI_FLOAT32),
		SCATTER(.bytes = 65536, .window = 4096, .depth = 32, .type = ABI_FLOAT32),
		SCATTER(.bytes = 1000, .window = 4096, .depth = 8, .type = ABI_FLOAT32),
		SCATTER(.bytes = 100004, .window = 4096, .depth = 8, .type = ABI_FLOAT32),
		SCATTER(.bytes = 10007, .window = 1001, .depth = 32, .type = ABI_INT8),
		SCATTER(.bytes = 5, .window = 3, .depth = 8, .type = ABI_INT8),
		SCATTER(.bytes = 30006, .window = 5002, .depth = 8, .type = ABI_BFLOAT16),
		SCATTER(.bytes = 80008, .window = 8 * 1000, .depth = 8, .type = ABI_FLOAT64, .op = ABI_MAX),
		SCATTER(.bytes = 2 << 20, .window = 8 * 131072, .depth = 8, .type = ABI_FLOAT32),
	};

	RUN(plans);
}

CASE(coll_scatter_large, "coll.reduce-scatter-large", COLL, 2, 2, COLL_SUMS,
	"windows of 4 MiB (8 channels of 512 KiB), 8 in flight")
{
	static const struct plan plans[] = {
		SCATTER(.bytes = 12 << 20, .window = 4 << 20, .depth = 8, .type = ABI_FLOAT32),
		SCATTER(.bytes = (5 << 20) + 1236, .window = 4 << 20, .depth = 8, .type = ABI_FLOAT32),
	};

	RUN(plans);
}

CASE(coll_scatter_registered, "coll.reduce-scatter-registered", COLL, 2, 4, COLL_SUMS,
	"whole user buffers, in place and not; cut at 3 000 000 bytes")
{
	static const struct plan plans[] = {
		SCATTER(.bytes = 512, .window = (size_t)1 << 29, .depth = 1, .type = ABI_FLOAT32, .registered = true),
		SCATTER(.bytes = 512, .window = (size_t)1 << 29, .depth = 1, .type = ABI_FLOAT32, .registered = true,
			.in_place = true),
		SCATTER(.bytes = 1000004, .window = (size_t)1 << 29, .depth = 1, .type = ABI_FLOAT32, .registered = true,
			.in_place = true),
		SCATTER(.bytes = 4 << 20, .window = 3000000, .depth = 6, .type = ABI_FLOAT32, .registered = true),
		SCATTER(.bytes = 4 << 20, .window = 3000000, .depth = 6, .type = ABI_FLOAT32, .registered = true, .in_place = true),
		SCATTER(.bytes = 700001, .window = 3000000, .depth = 8, .type = ABI_INT8, .registered = true),
		SCATTER(.bytes = 400, .window = 100, .depth = 8, .type = ABI_FLOAT32, .registered = true, .in_place = true),
	};

	RUN(plans);
}
