/* CollNet: types and operations, and how sums are rounded. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "case_coll.h"

CASE(coll_support, "coll.reduce-support", COLL, 2, 2, COLL_SUPPORT, "the answer for each type and operation")
{
	int types = 0;
	char text[200] = "sums:";

	group_init(r);
	under(COLL_SUPPORT);
	for (int type = 0; type < ABI_TYPES; type++) {
		bool sum = coll_supports(r, type, ABI_SUM);

		for (int op = ABI_SUM; op <= ABI_MIN; op++) {
			int mine = coll_supports(r, type, op), all[MAX_RANKS];

			EXPECT(mine == coll_supports(r, type, op), "reduceSupport(%s, %s): expected the same answer twice",
				type_name(type), op_name(op));
			exchange(r, &mine, all, sizeof(mine));
			EXPECT(all[0] == mine, "reduceSupport(%s, %s): expected the same answer on all ranks, got %d and %d",
				type_name(type), op_name(op), all[0], mine);
		}
		types += sum;
		if (sum) {
			strcat(text, " ");
			strcat(text, type_name(type));
		}
	}
	note(types ? "%s" : "no type is summed", text);
	group_finalize(r);
}

/* One plan for each type and operation that the plugin accepts. */
static void run_types(struct rank *r, struct plan p, size_t count)
{
	struct group g;
	int ran = 0;

	group_init(r);
	g = group_open(r);
	for (p.type = 0; p.type < ABI_TYPES; p.type++) {
		size_t size = type_size(p.type);

		for (p.op = ABI_SUM; p.op <= ABI_MIN; p.op++) {
			struct plan q = p;

			if (!coll_supports(r, p.type, p.op))
				continue;
			ran++;
			q.bytes = count * size;
			q.window = p.window / size * size;
			group_run(&g, &q);
		}
	}
	if (!ran)
		not_offered("reduceSupport refuses every type and operation");
	group_close(&g);
	group_finalize(r);
}

CASE(coll_reduce_types, "coll.allreduce-types", COLL, 2, 4, COLL_SUMS,
	"each type and operation that reduceSupport accepts")
{
	run_types(r, (struct plan){ .func = ABI_ALLREDUCE, .window = 4096, .depth = 8 }, 3001);
}

CASE(coll_scatter_types, "coll.reduce-scatter-types", COLL, 2, 3, COLL_SUMS,
	"each type and operation that reduceSupport accepts")
{
	run_types(r, (struct plan){ .func = ABI_REDUCE_SCATTER, .window = 4096, .depth = 8 }, 1501);
}

CASE(coll_reduce_in_place, "coll.allreduce-in-place", COLL, 2, 4, COLL_IN_PLACE, "send and receive are one buffer")
{
	run_types(r, (struct plan){ .func = ABI_ALLREDUCE, .window = 30000, .depth = 6, .registered = true, .in_place = true },
		10007);
}

CASE(coll_reduce_counts, "coll.allreduce-counts", COLL, 2, 4, COLL_SUMS, "counts from 0 to 4 Mi, staged and registered")
{
	static const size_t counts[] = { 0, 1, 2, 3, 7, 8, 63, 65, 1023, 1025, 65536, 300001 };
	struct group g;

	group_init(r);
	if (!coll_supports(r, ABI_FLOAT32, ABI_SUM))
		not_offered("reduceSupport refuses sums of float32");
	g = group_open(r);
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		struct plan p = { .func = ABI_ALLREDUCE, .bytes = 4 * counts[i], .window = 262144, .depth = 8, .type = ABI_FLOAT32 };

		group_run(&g, &p);
		p.registered = true;
		group_run(&g, &p);
		p.in_place = true;
		group_run(&g, &p);
	}
	if (r->ranks == 2)
		group_run(&g, &(struct plan){ .func = ABI_ALLREDUCE, .bytes = 16 << 20, .window = 3000000, .depth = 6,
			.type = ABI_FLOAT32, .registered = true, .in_place = true });
	group_close(&g);
	group_finalize(r);
}

/* Rank's element i, which the type holds exactly: one rank is so large that a
 * single 1 of the others is half a unit in its last place, and lost when the sum
 * is rounded at each step. */
static double uneven(int type, int rank, size_t i)
{
	int fraction_bits = type == ABI_FLOAT16 ? 10 : type == ABI_BFLOAT16 ? 7 : 23;

	return (size_t)rank == i % 3 ? (double)(2 << fraction_bits) + 4 * (double)(i % 50) : 1;
}

/* Half a unit in the last place of the sum, and what f32 may lose over the ranks. */
static double tolerance(int type, double exact, int ranks)
{
	int exponent, fraction_bits = type == ABI_FLOAT16 ? 10 : type == ABI_BFLOAT16 ? 7 : 23;

	frexp(exact, &exponent);
	return ldexp(0.5, exponent - 1 - fraction_bits) + ranks * ldexp(1, exponent - 1 - 23);
}

static void round_type(struct group *g, int type)
{
	enum { COUNT = 999 };
	struct rank *r = g->r;
	size_t bytes = COUNT * type_size(type);
	struct buffer send = buffer_new(bytes, 0), recv = buffer_new(bytes, 0);
	void *send_mhandle = NULL, *recv_mhandle = NULL, *request = NULL;
	uint64_t sum = 0, all[MAX_RANKS];
	int done = 0;

	for (size_t i = 0; i < COUNT; i++)
		element_store(send.data, i, type, uneven(type, r->rank, i));
	OK(coll_reg_mr(&r->coll, g->comm, send.data, bytes, ABI_PTR_HOST, &send_mhandle));
	OK(coll_reg_mr(&r->coll, g->comm, recv.data, bytes, ABI_PTR_HOST, &recv_mhandle));
	under(COLL_COMPLETION);
	while (!request) {
		OK(coll_iallreduce(&r->coll, g->comm, send.data, recv.data, COUNT, type, ABI_SUM, send_mhandle,
			recv_mhandle, &request));
		breathe(r, request);
	}
	while (!done) {
		OK(coll_test(&r->coll, request, &done, NULL));
		breathe(r, done);
	}
	for (size_t i = 0; i < COUNT; i++) {
		double exact = 0, got = element_load(recv.data, i, type), slack;
		bool close;

		for (int rank = 0; rank < r->ranks; rank++)
			exact += uneven(type, rank, i);
		slack = tolerance(type, exact, r->ranks);
		close = fabs(got - exact) <= slack;
		EXPECT_RULE(COLL_ROUNDING, close, "sum of %s, element %zu over %d ranks: expected %.9g within %.3g, got %.9g",
			type_name(type), i, r->ranks, exact, slack, got);
		if (!close)
			break;		/* advice, once */
		EXPECT_RULE(COLL_SUMS, fabs(got - exact) <= 8 * slack, "sum of %s, element %zu: expected about %.9g, got %.9g",
			type_name(type), i, exact, got);
	}
	for (size_t i = 0; i < bytes; i++)
		sum = (sum ^ recv.data[i]) * 0x100000001b3u;
	exchange(r, &sum, all, sizeof(sum));
	EXPECT_RULE(COLL_AGREEMENT, all[0] == sum, "sum of %s: expected the bits that rank 0 has, got others",
		type_name(type));
	guards_check("receive buffer", COLL_GUARDS, &recv, bytes);
	OK(coll_dereg_mr(&r->coll, g->comm, send_mhandle));
	OK(coll_dereg_mr(&r->coll, g->comm, recv_mhandle));
	buffer_free(&send);
	buffer_free(&recv);
}

CASE(coll_rounding, "coll.allreduce-rounding", COLL, 3, 4, COLL_ROUNDING,
	"large and small addends: one rounding, the same on all ranks")
{
	static const int types[] = { ABI_FLOAT16, ABI_BFLOAT16, ABI_FLOAT32 };
	struct group g;
	int ran = 0;

	group_init(r);
	g = group_open(r);
	for (int i = 0; i < 3; i++)
		if (coll_supports(r, types[i], ABI_SUM)) {
			ran++;
			round_type(&g, types[i]);
		}
	if (!ran)
		not_offered("reduceSupport refuses sums of float16, bfloat16 and float32");
	group_close(&g);
	group_finalize(r);
}
