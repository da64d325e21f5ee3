/* The tuner: NCCL takes CollNetDirect for Allgather and Reduce-Scatter from a size on where it wins, if this
 * communicator's CollNet is connected and has one GPU a node. Everything else is left alone.
 *
 * With several GPUs a node NCCL connects CollNet in one process of the node: the others' tuners cannot
 * know, and ranks that choose differently wait for each other for ever.
 *
 * The tables of v5 and later are in abi_vN.c; up to v4 a tuner is not told its communicator. */
#define _GNU_SOURCE /* strcasestr */
#include <string.h>

#include "_cgo_export.h"
#include "plugin.h"

struct tuner {
	int64_t communicator; /* in the list of mcast_communicators */
	struct connected *connected;
	bool alone;     /* one GPU a node */
	bool free;      /* the user's NCCL_ALGO and NCCL_PROTO leave the choice to us */
	size_t from[5]; /* bytes, by ncclFunc_t; 0: never */
};

/* excluded reports whether a variable of NCCL's keeps a choice out. It may name
 * collectives and lists; what is not plainly for us counts as against. */
static bool excluded(const char *variable, const char *wanted)
{
	const char *value = getenv(variable);

	return value != NULL && *value != '\0' && (strchr(value, '^') != NULL || strcasestr(value, wanted) == NULL);
}

static bool enabled(void)
{
	const char *value = getenv("NCCL_COLLNET_ENABLE");

	return value != NULL && atoi(value) != 0;
}

static void say_from(const char *what, size_t from)
{
	if (from == 0)
		INFO("CollNet is connected: %ss do not go through it (set to 0)", what);
	else
		INFO("CollNet is connected: %ss of %zu bytes or more in total go through it", what, from);
}

static nccl_result tuner_init(uint64_t comm_id, size_t ranks, size_t nodes, nccl_logger log, void **ctx)
{
	struct tuner *t;
	nccl_result result;
	const char *why = NULL;
	bool confirmed = connected_confirmed();

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
	t->free = !excluded("NCCL_ALGO", "collnetdirect") && !excluded("NCCL_PROTO", "simple");
	t->alone = ranks == nodes;
	if (t->alone && confirmed)
		t->connected = connected_claim(comm_id, nodes);
	if (nodes < 2)
		why = "there is one node";
	else if (!t->alone)
		why = "there are several GPUs a node";
	else if (t->connected == NULL)
		why = enabled() ? "NCCL has not connected its CollNet: a warning above says why, or there are fewer nodes than NCCL_COLLNET_NODE_THRESHOLD"
				: "its CollNet is not connected; NCCL_COLLNET_ENABLE=1 turns it on";
	else if (!t->free)
		why = "NCCL_ALGO or NCCL_PROTO say otherwise";
	if (why == NULL) {
		say_from("Allgather", t->from[NCCL_ALLGATHER]);
		say_from("Reduce-Scatter", t->from[NCCL_REDUCE_SCATTER]);
	} else {
		INFO("NCCL chooses by itself for this communicator of %zu ranks on %zu nodes: %s", ranks, nodes, why);
	}
	t->communicator = goCommunicatorAdd(ranks, nodes, (char *)why, t->from[NCCL_ALLGATHER], t->from[NCCL_REDUCE_SCATTER], t->connected);
	*ctx = t;
	return NCCL_SUCCESS;
}

/* large reports whether an operation is one that CollNet is to have. */
static bool large(const struct tuner *t, int func, size_t bytes)
{
	return t != NULL && t->free && (func == NCCL_ALLGATHER || func == NCCL_REDUCE_SCATTER) && t->from[func] > 0 && bytes >= t->from[func];
}

nccl_result tuner_destroy(void *ctx)
{
	struct tuner *t = ctx;

	if (t == NULL)
		return NCCL_SUCCESS;
	if (!mcast_forked())
		goCommunicatorRemove(t->communicator);
	connected_release(t->connected);
	free(t);
	return NCCL_SUCCESS;
}

nccl_result tuner_init_v5(void **ctx, uint64_t comm_id, size_t ranks, size_t nodes, nccl_logger log, void *domains, void *constants)
{
	(void)domains, (void)constants;
	return tuner_init(comm_id, ranks, nodes, log, ctx);
}

/* The table says -1 where NCCL sees no NVSwitch. CollNetDirect does without on one GPU
 * a node, and CollNet reduces every type that NCCL has: 0 is written over it. */
nccl_result tuner_costs(void *ctx, int func, size_t bytes, int ops, float **costs, int algorithms, int protocols,
	int registered, int *channels)
{
	const struct tuner *t = ctx;

	(void)ops, (void)registered, (void)channels;
	if (costs != NULL && algorithms > NCCL_ALGO_COLLNET_DIRECT && protocols > NCCL_PROTO_SIMPLE && large(t, func, bytes) &&
		connected_still(t->connected))
		((float *)costs)[NCCL_ALGO_COLLNET_DIRECT * protocols + NCCL_PROTO_SIMPLE] = 0;
	return NCCL_SUCCESS;
}

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
	const struct tuner *t = ctx;

	(void)nvls, (void)ops, (void)channels;
	if (collnet && algorithm != NULL && protocol != NULL && large(t, func, bytes) && t->alone) {
		*algorithm = NCCL_ALGO_COLLNET_DIRECT;
		*protocol = NCCL_PROTO_SIMPLE;
	}
	return NCCL_SUCCESS;
}

EXPORT const struct tuner_v2 ncclTunerPlugin_v2 = {
	.name = PLUGIN_NAME, .init = tuner_init_v4, .getCollInfo = tuner_choose_v2, .destroy = tuner_destroy,
};

/* v1: NCCL 2.20. It has no context, so nothing here is of one communicator: all ranks
 * answer alike from the settings and from what NCCL says of each call. A process that has ever had
 * a communicator with several GPUs a node leaves everything to NCCL. */
static struct tuner of_v1;
static bool crowded_v1;

static nccl_result tuner_init_v1(size_t ranks, size_t nodes, nccl_logger log)
{
	struct tuner *t;
	nccl_result result = tuner_init(0, ranks, nodes, log, (void **)&t);

	if (result != NCCL_SUCCESS)
		return result;
	if (nodes > 1 && ranks != nodes)
		__atomic_store_n(&crowded_v1, true, __ATOMIC_RELAXED);
	of_v1.from[NCCL_ALLGATHER] = t->from[NCCL_ALLGATHER];
	of_v1.from[NCCL_REDUCE_SCATTER] = t->from[NCCL_REDUCE_SCATTER];
	of_v1.free = t->free;
	return tuner_destroy(t);
}

static nccl_result tuner_choose_v1(int func, size_t bytes, int collnet, int nvls, int ops, int *algorithm, int *protocol, int *channels)
{
	(void)nvls, (void)ops, (void)channels;
	if (collnet && algorithm != NULL && protocol != NULL && large(&of_v1, func, bytes) && !__atomic_load_n(&crowded_v1, __ATOMIC_RELAXED)) {
		*algorithm = NCCL_ALGO_COLLNET_DIRECT;
		*protocol = NCCL_PROTO_SIMPLE;
	}
	return NCCL_SUCCESS;
}

static nccl_result tuner_destroy_v1(void) { return NCCL_SUCCESS; }

EXPORT const struct tuner_v1 ncclTunerPlugin_v1 = {
	.name = PLUGIN_NAME, .init = tuner_init_v1, .getCollInfo = tuner_choose_v1, .destroy = tuner_destroy_v1,
};
