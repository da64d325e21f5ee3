/* The tuner: NCCL takes CollNetDirect for Allgather and Reduce-Scatter from a size on where it wins, if this
 * communicator's CollNet is connected. Everything else is left alone. */
#include "_cgo_export.h"
#include "plugin.h"

struct tuner {
	struct connected *connected;
	bool alone; /* one GPU a node */
	size_t from[5]; /* bytes, by ncclFunc_t; 0: never */
};

static nccl_result tuner_init(uint64_t comm_id, size_t ranks, size_t nodes, nccl_logger log, void **ctx)
{
	struct tuner *t;
	nccl_result result;

	NOT_IN_A_FORK("tuner init");
	if (ctx == NULL)
		return plugin_refuse(NCCL_INVALID_ARGUMENT, "tuner init: context must not be NULL");
	*ctx = NULL;
	plugin_log_to(log);
	t = calloc(1, sizeof(*t));
	if (t == NULL)
		return plugin_refuse(NCCL_SYSTEM_ERROR, "tuner init: out of memory");
	result = goTuner(&t->from[NCCL_ALLGATHER], &t->from[NCCL_REDUCE_SCATTER]);
	if (result != NCCL_SUCCESS) {
		free(t);
		return result;
	}
	t->alone = ranks == nodes;
	t->connected = connected_claim(comm_id, nodes);
	if (t->connected != NULL)
		INFO("CollNet is connected: Allgathers from %zu bytes on and Reduce-Scatters from %zu bytes on go through it (0: never)",
			t->from[NCCL_ALLGATHER], t->from[NCCL_REDUCE_SCATTER]);
	else
		INFO("CollNet is not connected for this communicator of %zu nodes: NCCL chooses by itself%s", nodes,
			nodes < 2 ? " (there is but one node)" : " (NCCL_COLLNET_ENABLE=1 turns CollNet on)");
	*ctx = t;
	return NCCL_SUCCESS;
}

/* wanted reports whether CollNetDirect is to be taken. */
static bool wanted(const struct tuner *t, int func, size_t bytes)
{
	if (t == NULL || (func != NCCL_ALLGATHER && func != NCCL_REDUCE_SCATTER))
		return false;
	return t->from[func] > 0 && bytes >= t->from[func] && connected_still(t->connected);
}

static nccl_result tuner_destroy(void *ctx)
{
	struct tuner *t = ctx;

	if (t != NULL)
		connected_release(t->connected);
	free(t);
	return NCCL_SUCCESS;
}

/* v6 and v5: NCCL 2.28 and later */
static nccl_result tuner_init_v5(void **ctx, uint64_t comm_id, size_t ranks, size_t nodes, nccl_logger log, void *domains, void *constants)
{
	(void)domains, (void)constants;
	return tuner_init(comm_id, ranks, nodes, log, ctx);
}

/* The table says -1 where NCCL sees no NVSwitch. CollNetDirect does without if
 * there is one GPU a node: then 0 is written over it. */
static nccl_result tuner_costs(void *ctx, int func, size_t bytes, int ops, float **costs, int algorithms, int protocols,
	int registered, int *channels)
{
	const struct tuner *t = ctx;
	float *cost;

	(void)ops, (void)registered, (void)channels;
	if (!wanted(t, func, bytes) || costs == NULL || algorithms <= NCCL_ALGO_COLLNET_DIRECT || protocols <= NCCL_PROTO_SIMPLE)
		return NCCL_SUCCESS;
	cost = (float *)costs + NCCL_ALGO_COLLNET_DIRECT * protocols + NCCL_PROTO_SIMPLE;
	if (t->alone || *cost >= 0)
		*cost = 0;
	return NCCL_SUCCESS;
}

EXPORT const struct tuner_v6 ncclTunerPlugin_v6 = {
	.name = PLUGIN_NAME, .init = tuner_init_v5, .getCollInfo = tuner_costs, .finalize = tuner_destroy,
};
EXPORT const struct tuner_v5 ncclTunerPlugin_v5 = {
	.name = PLUGIN_NAME, .init = tuner_init_v5, .getCollInfo = tuner_costs, .finalize = tuner_destroy,
};

/* v4: NCCL 2.24 to 2.27 */
static nccl_result tuner_init_v4(size_t ranks, size_t nodes, nccl_logger log, void **ctx)
{
	return tuner_init(0, ranks, nodes, log, ctx);
}

EXPORT const struct tuner_v4 ncclTunerPlugin_v4 = {
	.name = PLUGIN_NAME, .init = tuner_init_v4, .getCollInfo = tuner_costs, .destroy = tuner_destroy,
};

/* v3: NCCL 2.22 and 2.23 */
static nccl_result tuner_costs_v3(void *ctx, int func, size_t bytes, int ops, float **costs, int algorithms, int protocols, int *channels)
{
	return tuner_costs(ctx, func, bytes, ops, costs, algorithms, protocols, 0, channels);
}

EXPORT const struct tuner_v3 ncclTunerPlugin_v3 = {
	.name = PLUGIN_NAME, .init = tuner_init_v4, .getCollInfo = tuner_costs_v3, .destroy = tuner_destroy,
};

/* v2: NCCL 2.21. It is told whether CollNet is to be had, and names the algorithm whatever that costs. */
static nccl_result tuner_choose_v2(void *ctx, int func, size_t bytes, int collnet, int nvls, int ops,
	int *algorithm, int *protocol, int *channels)
{
	(void)nvls, (void)ops, (void)channels;
	if (collnet && algorithm != NULL && protocol != NULL && wanted(ctx, func, bytes) && ((const struct tuner *)ctx)->alone) {
		*algorithm = NCCL_ALGO_COLLNET_DIRECT;
		*protocol = NCCL_PROTO_SIMPLE;
	}
	return NCCL_SUCCESS;
}

EXPORT const struct tuner_v2 ncclTunerPlugin_v2 = {
	.name = PLUGIN_NAME, .init = tuner_init_v4, .getCollInfo = tuner_choose_v2, .destroy = tuner_destroy,
};

/* v1: NCCL 2.20. It has no context: the last communicator's tuner answers, and
 * NCCL says for each call whether that communicator has CollNet. */
static void *tuner_of_v1;

static nccl_result tuner_init_v1(size_t ranks, size_t nodes, nccl_logger log)
{
	void *ctx;
	nccl_result result = tuner_init(0, ranks, nodes, log, &ctx);

	if (result == NCCL_SUCCESS) {
		tuner_destroy(tuner_of_v1);
		tuner_of_v1 = ctx;
	}
	return result;
}

static nccl_result tuner_choose_v1(int func, size_t bytes, int collnet, int nvls, int ops, int *algorithm, int *protocol, int *channels)
{
	return tuner_choose_v2(tuner_of_v1, func, bytes, collnet, nvls, ops, algorithm, protocol, channels);
}

static nccl_result tuner_destroy_v1(void)
{
	void *ctx = tuner_of_v1;

	tuner_of_v1 = NULL;
	return tuner_destroy(ctx);
}

EXPORT const struct tuner_v1 ncclTunerPlugin_v1 = {
	.name = PLUGIN_NAME, .init = tuner_init_v1, .getCollInfo = tuner_choose_v1, .destroy = tuner_destroy_v1,
};
