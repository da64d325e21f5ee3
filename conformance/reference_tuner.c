/* The tuner: CollNet for Allgather and Reduce-Scatter where this library's
 * CollNet is connected, everything else as NCCL has it. */
#include "reference.h"

/* NCCL divides by the number of CollNet channels without asking whether there
 * are any, so a choice of CollNet that is not connected is a SIGFPE there. */
static bool wanted(uint64_t id, size_t nnodes, int coll)
{
	if (mutant("tuner-broadcast") && coll == ABI_BROADCAST)
		return true;
	if (coll != ABI_ALLGATHER && coll != ABI_REDUCE_SCATTER)
		return false;
	return mutant("tuner-unconnected") || (nnodes > 1 && ref_coll_open(id, (int)nnodes) > 0);
}

void ref_tune(uint64_t id, size_t nnodes, int coll, float *table, int algos, int protos)
{
	if (mutant("tuner-overflow"))
		table[algos * protos] = 0;
	if (algos > ABI_COLLNET_DIRECT && protos > ABI_SIMPLE && wanted(id, nnodes, coll))
		table[ABI_COLLNET_DIRECT * protos + ABI_SIMPLE] = 0;
}

int ref_tune_v2(size_t nnodes, int coll, int coll_support, int *algo, int *proto)
{
	if (wanted(0, nnodes, coll) && (coll_support || mutant("tuner-unconnected") || mutant("tuner-broadcast"))) {
		*algo = ABI_COLLNET_DIRECT;
		*proto = ABI_SIMPLE;
	}
	return ABI_SUCCESS;
}
