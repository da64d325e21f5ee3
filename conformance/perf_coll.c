/* Allgather, Reduce-Scatter and Allreduce of registered buffers in windows of
 * 4 MiB, eight in flight, polled as NCCL polls. size is nccl-tests': all ranks'
 * bytes of an Allgather, one rank's input of the others. */
#include "case_coll.h"
#include "perf.h"

enum { WINDOW = 4 << 20, BYTES = 64 << 20, WARM_UP = 2 };

struct bench {
	struct rank *r;
	struct group g;
	struct buffer send, recv;
	void *send_mhandle, *recv_mhandle;
	int func;
	size_t total, part;		/* all bytes; of a rank's slot */
};

/* Bytes of rank's slot inside the window, and where they begin in the slot. */
static size_t own_part(const struct bench *b, size_t from, size_t bytes, size_t *at)
{
	size_t first = (size_t)b->r->rank * b->part, end = first + b->part;
	size_t low = first > from ? first : from, high = end < from + bytes ? end : from + bytes;

	*at = low < high ? low - first : 0;
	return low < high ? high - low : 0;
}

static void *post(struct bench *b, size_t from, size_t bytes)
{
	struct coll *c = &b->r->coll;
	struct abi_part part;
	void *request = NULL;
	size_t at;

	own_part(b, from, bytes, &at);
	switch (b->func) {
	case ABI_ALLGATHER:
		part = (struct abi_part){ b->recv_mhandle, b->recv.data + from, bytes };
		OK(coll_iallgather(c, b->g.comm, b->send.data + at, 1, &part, b->part, from, bytes, b->send_mhandle, &request));
		break;
	case ABI_REDUCE_SCATTER:
		part = (struct abi_part){ b->send_mhandle, b->send.data + from, bytes };
		OK(coll_ireduce_scatter(c, b->g.comm, 1, &part, b->recv.data + at, b->part, from, bytes, ABI_FLOAT32, ABI_SUM,
			b->recv_mhandle, &request));
		break;
	default:
		OK(coll_iallreduce(c, b->g.comm, b->send.data + from, b->recv.data + from, bytes / 4, ABI_FLOAT32, ABI_SUM,
			b->send_mhandle, b->recv_mhandle, &request));
	}
	return request;
}

static void operate(struct bench *b)
{
	void *requests[PERF_IN_FLIGHT];
	size_t windows = (b->total + WINDOW - 1) / WINDOW, posted = 0, done = 0;

	while (done < windows) {
		bool busy = false;
		int is_done = 0;

		while (posted < windows && posted - done < PERF_IN_FLIGHT) {
			size_t from = posted * WINDOW, left = b->total - from;
			void *request = post(b, from, left < WINDOW ? left : WINDOW);

			if (!request)
				break;
			requests[posted++ % PERF_IN_FLIGHT] = request;
			busy = true;
		}
		if (done < posted) {
			OK(coll_test(&b->r->coll, requests[done % PERF_IN_FLIGHT], &is_done, NULL));
			done += is_done != 0;
			busy |= is_done;
		}
		breathe(b->r, busy);
	}
}

/* The last operation's bytes, so that no figure comes from a transfer that was none. */
static void check(struct bench *b)
{
	size_t own = b->func == ABI_REDUCE_SCATTER ? (size_t)b->r->rank * b->part : 0;
	size_t bytes = b->func == ABI_REDUCE_SCATTER ? b->part : b->total;

	for (size_t i = 0; i < bytes / 4; i += bytes < 65536 ? 1 : 997) {
		float got = ((float *)(void *)b->recv.data)[i];
		size_t at = i + own / 4;
		float want = b->func == ABI_ALLGATHER ? (float)(at * 4 / b->part + 1) :
			(float)(b->r->ranks * (b->r->ranks + 1) / 2);

		EXPECT_RULE(COLL_BYTES, got == want, "measured operation: expected element %zu to be %g, got %g", i,
			(double)want, (double)got);
	}
}

static double measure(struct bench *b, int func, size_t size)
{
	int times = perf_repeats(size) / b->r->ranks + 3;
	double start;

	b->func = func;
	b->part = func == ABI_ALLREDUCE ? size : size / (size_t)b->r->ranks / 4 * 4;
	b->total = func == ABI_ALLREDUCE ? size / 4 * 4 : b->part * (size_t)b->r->ranks;
	if (b->part < 4)
		return 0;
	for (int i = 0; i < WARM_UP; i++)
		operate(b);
	barrier(b->r);
	start = now();
	for (int i = 0; i < times; i++)
		operate(b);
	start = now() - start;
	check(b);
	barrier(b->r);
	return start / times * 1e6;
}

static void run(struct rank *r)
{
	static const int funcs[] = { ABI_ALLGATHER, ABI_REDUCE_SCATTER, ABI_ALLREDUCE };
	struct perf_round *round = r->area;
	struct bench b = { .r = r };
	bool sums;

	group_init(r);
	b.g = group_open(r);
	b.send = buffer_new(BYTES, 0);
	b.recv = buffer_new(BYTES, 0);
	OK(coll_reg_mr(&r->coll, b.g.comm, b.send.data, BYTES, ABI_PTR_HOST, &b.send_mhandle));
	OK(coll_reg_mr(&r->coll, b.g.comm, b.recv.data, BYTES, ABI_PTR_HOST, &b.recv_mhandle));
	for (size_t i = 0; i < BYTES / 4; i++)
		((float *)(void *)b.send.data)[i] = (float)(r->rank + 1);
	sums = coll_supports(r, ABI_FLOAT32, ABI_SUM);
	under(COLL_COMPLETION);
	for (int f = 0; f < (sums ? 3 : 1); f++)
		for (int i = 0; i < PERF_SIZES; i++) {
			double us = measure(&b, funcs[f], perf_sizes[i]);

			if (r->rank == 0)
				round->us[ALLGATHER + f][i] = us;
		}
	OK(coll_dereg_mr(&r->coll, b.g.comm, b.send_mhandle));
	OK(coll_dereg_mr(&r->coll, b.g.comm, b.recv_mhandle));
	group_close(&b.g);
	group_finalize(r);
}

const struct test perf_coll = { "perf.coll", COLL, 2, MAX_RANKS, COLL_COMPLETION, "the three collectives", run, NULL };
