/* The calls of the tuner, each with its log. */
#include "board.h"
#include "library.h"

int tuner_init(struct tuner *t, uint64_t id, size_t nranks, size_t nnodes, void **ctx)
{
	static struct abi_constants constants;
	struct abi_nvl_domains domains = { (int)nnodes, (int)(nranks / nnodes), (int)(nranks / nnodes) };
	int result = CALL(t->calls.init(ctx, id, nranks, nnodes, plugin_log, &domains, &constants),
		"tuner init(nRanks %lu, nNodes %lu, id %lu)", nranks, nnodes, id);

	t->version->read(&t->calls, t->table); /* as in net_init */
	return result;
}

/* A choice becomes the cheapest, as NCCL has it (2.30.7, src/plugin/tuner/tuner_v2.cc). */
static int choose(struct tuner *t, void *ctx, int func, size_t bytes, int collnet, int nvls, int pipe_ops,
	float *costs, int algos, int protos, int *channels)
{
	int algo = -1, proto = -1;
	int result = t->calls.choose(ctx, func, bytes, collnet, nvls, pipe_ops, &algo, &proto, channels);

	if (result != ABI_SUCCESS || (algo == -1 && proto == -1))
		return result;
	if (algo < 0 || algo >= algos || proto < 0 || proto >= protos)
		return ABI_INTERNAL_ERROR;
	if (costs[algo * protos + proto] != ABI_COST_IGNORE)
		costs[algo * protos + proto] = 0;
	return result;
}

int tuner_info(struct tuner *t, void *ctx, int func, size_t bytes, int collnet, int nvls, int pipe_ops,
	float *costs, int algos, int protos, int registered, int *channels)
{
	return CALL(t->calls.choose ?
			choose(t, ctx, func, bytes, collnet, nvls, pipe_ops, costs, algos, protos, channels) :
			t->calls.get_info(ctx, func, bytes, pipe_ops, (float **)(void *)costs, algos, protos,
				registered, channels),
		"tuner getCollInfo(func %ld, %lu bytes)", func, bytes, 0);
}

int tuner_chunk(struct tuner *t, void *ctx, int func, size_t bytes, int algo, int proto, int channels,
	size_t *chunk)
{
	if (!t->calls.get_chunk_size)
		return ABI_SUCCESS;
	return CALL(t->calls.get_chunk_size(ctx, func, bytes, algo, proto, channels, chunk),
		"tuner getChunkSize(func %ld, %lu bytes, algo %ld)", func, bytes, algo);
}

int tuner_destroy(struct tuner *t, void *ctx)
{
	return CALL(t->calls.finalize(ctx), "tuner destroy(ctx 0x%lx)", ctx, 0, 0);
}
