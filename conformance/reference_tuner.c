/* The tuner: CollNet for Allgather and Reduce-Scatter where this library's
 * CollNet is connected, everything else as NCCL has it. */
#include <math.h>

#include "reference.h"

/* NCCL divides by the number of CollNet channels without asking whether there
 * are any, so a choice of CollNet that is not connected is a SIGFPE there. */
static bool wanted(const struct ref_context *ctx, int coll)
{
	if (mutant("tuner-broadcast") && coll == ABI_BROADCAST)
		return true;
	if (coll != ABI_ALLGATHER && coll != ABI_REDUCE_SCATTER)
		return false;
	return mutant("tuner-unconnected") || (ctx->nnodes > 1 && ref_coll_open(ctx->id, (int)ctx->nnodes) > 0);
}

int ref_tuner_info(void *ctx, int coll, size_t bytes, int pipe_ops, float **costs, int algos, int protos,
	int registered, int *channels)
{
	const struct ref_context *c = ctx;
	float *table = (float *)(void *)costs;
	float *cost = &table[ABI_COLLNET_DIRECT * protos + ABI_SIMPLE];

	(void)bytes, (void)pipe_ops, (void)registered, (void)channels;
	if (mutant("tuner-overflow"))
		table[algos * protos] = 0;
	if (algos <= ABI_COLLNET_DIRECT || protos <= ABI_SIMPLE || !wanted(c, coll))
		return ABI_SUCCESS;
	if (mutant("tuner-odd-rank") && ref_coll_odd(c->id))
		return ABI_SUCCESS;
	if (mutant("tuner-negative"))
		table[ABI_RING * protos + ABI_SIMPLE] = ABI_COST_IGNORE;
	if (!c->crowded || *cost >= 0 || mutant("tuner-crowded"))
		*cost = mutant("tuner-nan") ? NAN : 0;
	return ABI_SUCCESS;
}

/* NCCL's own choice, but for windows that differ. */
int ref_tuner_chunk(void *ctx, int coll, size_t bytes, int algo, int proto, int channels, size_t *chunk)
{
	const struct ref_context *c = ctx;

	(void)coll, (void)bytes, (void)algo, (void)proto, (void)channels;
	if (mutant("tuner-odd-chunk") && ref_coll_odd(c->id))
		*chunk *= 2;
	return ABI_SUCCESS;
}

int ref_tuner_choose(void *ctx, int coll, int coll_support, int *algo, int *proto)
{
	if (wanted(ctx, coll) && (coll_support || mutant("tuner-unconnected") || mutant("tuner-broadcast"))) {
		*algo = ABI_COLLNET_DIRECT;
		*proto = ABI_SIMPLE;
	}
	return ABI_SUCCESS;
}
