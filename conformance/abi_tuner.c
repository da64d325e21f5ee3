/* Tuners in their newest shape over each older table (NCCL 2.30.7,
 * src/plugin/tuner). */
#include "board.h"

#define V2 ((const struct abi_tuner_v2 *)t->table)
#define V3 ((const struct abi_tuner_v3 *)t->table)
#define V4 ((const struct abi_tuner_v4 *)t->table)
#define V5 ((const struct abi_tuner_v5 *)t->table)
#define V6 ((const struct abi_tuner_v6 *)t->table)

int tuner_init(struct tuner *t, uint64_t id, size_t nranks, size_t nnodes, void **ctx)
{
	static struct abi_constants constants;
	struct abi_nvl_domains domains = { (int)nnodes, (int)(nranks / nnodes), (int)(nranks / nnodes) };

	if (t->abi < 5)
		return CALL(V2->init(nranks, nnodes, plugin_log, ctx),
			"tuner init(nRanks %lu, nNodes %lu)", nranks, nnodes, 0);
	return CALL(V5->init(ctx, id, nranks, nnodes, plugin_log, &domains, &constants),
		"tuner init(nRanks %lu, nNodes %lu, id %lu)", nranks, nnodes, id);
}

static int info_v2(struct tuner *t, void *ctx, int func, size_t bytes, int collnet, int nvls, int pipe_ops,
	float *costs, int algos, int protos, int *channels)
{
	int algo = -1, proto = -1;
	int result = V2->get_info(ctx, func, bytes, collnet, nvls, pipe_ops, &algo, &proto, channels);

	if (result != ABI_SUCCESS || (algo == -1 && proto == -1))
		return result;
	if (algo < 0 || algo >= algos || proto < 0 || proto >= protos)
		return ABI_INTERNAL_ERROR;
	if (costs[algo * protos + proto] != ABI_COST_IGNORE)
		costs[algo * protos + proto] = 0;
	return result;
}

static int info(struct tuner *t, void *ctx, int func, size_t bytes, int collnet, int nvls, int pipe_ops,
	float *costs, int algos, int protos, int registered, int *channels)
{
	if (t->abi == 2)
		return info_v2(t, ctx, func, bytes, collnet, nvls, pipe_ops, costs, algos, protos, channels);
	if (t->abi == 3)
		return V3->get_info(ctx, func, bytes, pipe_ops, (float **)(void *)costs, algos, protos, channels);
	return V4->get_info(ctx, func, bytes, pipe_ops, (float **)(void *)costs, algos, protos, registered,
		channels);
}

int tuner_info(struct tuner *t, void *ctx, int func, size_t bytes, int collnet, int nvls, int pipe_ops,
	float *costs, int algos, int protos, int registered, int *channels)
{
	return CALL(info(t, ctx, func, bytes, collnet, nvls, pipe_ops, costs, algos, protos, registered, channels),
		"tuner getCollInfo(func %ld, %lu bytes)", func, bytes, 0);
}

int tuner_chunk(struct tuner *t, void *ctx, int func, size_t bytes, int algo, int proto, int channels,
	size_t *chunk)
{
	if (t->abi < 6 || !V6->get_chunk_size)
		return ABI_SUCCESS;
	return CALL(V6->get_chunk_size(ctx, func, bytes, algo, proto, channels, chunk),
		"tuner getChunkSize(func %ld, %lu bytes, algo %ld)", func, bytes, algo);
}

int tuner_destroy(struct tuner *t, void *ctx)
{
	return CALL(V2->destroy(ctx), "tuner destroy(ctx 0x%lx)", ctx, 0, 0);
}
