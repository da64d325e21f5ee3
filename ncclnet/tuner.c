/* The tuner: NCCL takes CollNetDirect for Allgather and Reduce-Scatter where that wins (tuner_rule.c), if this
 * communicator's CollNet is connected, and takes it for none of them, nor for Allreduce, where it loses.
 * Everything else is left alone.
 *
 * Ranks that choose differently wait for each other for ever: docs/decisions/0036 has why they do not.
 *
 * The tables of v5 and later are in abi_vN.c; up to v4 a tuner is not told its communicator. */
#define _GNU_SOURCE /* strcasestr */
#include <string.h>

#include "_cgo_export.h"
#include "plugin.h"

/* Of NCCL's chunks: 8 are in flight on a channel, each a multiple of 512 bytes. */
enum { NCCL_STEPS = 8, NCCL_GRAIN = 512 };

struct tuner {
	int64_t communicator; /* in the list of mcast_communicators */
	struct connected *connected;
	bool alone;  /* one GPU a node */
	bool free;   /* the user's NCCL_ALGO and NCCL_PROTO leave the choice to us */
	size_t heads; /* GPUs of a node that have a CollNet connection each, where CollNet is to be had */
	struct tuner_facts facts;
};

/* excluded reports whether a variable of NCCL's keeps a choice out. Its value may name
 * collectives and lists; a value that does not plainly allow the choice counts as against it. */
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

/* tuner_make makes a communicator's tuner. chunks: its NCCL asks for the size of windows. */
static nccl_result tuner_make(uint64_t comm_id, size_t ranks, size_t nodes, bool chunks, nccl_logger log, void **ctx)
{
	struct tuner *t;
	size_t region = 0;
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
	result = goTuner(&t->facts.from[NCCL_ALLGATHER], &t->facts.from[NCCL_REDUCE_SCATTER]);
	if (result != NCCL_SUCCESS) {
		free(t);
		return result;
	}
	t->free = !excluded("NCCL_ALGO", "collnetdirect") && !excluded("NCCL_PROTO", "simple");
	t->alone = ranks == nodes;
	t->heads = nodes > 0 && ranks > nodes ? ranks / nodes : 1;
	if (confirmed)
		t->connected = connected_claim(comm_id, nodes, &t->facts.agreed, &region);
	t->facts.nodes = nodes;
	t->facts.several = ranks > nodes;
	t->facts.chunks = chunks;
	t->facts.inflight = region / 2 * t->heads; /* the other half is for what is received */
	if (nodes < 2)
		why = "there is one node";
	else if (t->connected == NULL)
		why = enabled() ? "NCCL has not connected its CollNet: a warning above says why, or there are fewer nodes than "
			"NCCL_COLLNET_NODE_THRESHOLD"
				: "its CollNet is not connected: it is off, and NCCL_COLLNET_ENABLE=1 turns it on, or a warning above says why";
	else if (!t->free)
		why = "NCCL_ALGO or NCCL_PROTO say otherwise";
	else if (!t->alone && !t->facts.agreed.alike)
		why = "some nodes have an NVSwitch and others none";
	if (why == NULL) {
		INFO("CollNet is connected: %zu ranks on %zu nodes%s", ranks, nodes,
			t->alone ? "" : "; with several GPUs a node NCCL must hold it possible, which before 2.31 takes an NVSwitch");
		tuner_say_rule(&t->facts, t->alone);
	} else {
		INFO("NCCL chooses by itself for this communicator of %zu ranks on %zu nodes: %s", ranks, nodes, why);
	}
	t->communicator = goCommunicatorAdd(ranks, nodes, (char *)why, t, t->connected);
	*ctx = t;
	return NCCL_SUCCESS;
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

nccl_result tuner_init_v5(void **ctx, uint64_t comm_id, size_t ranks, size_t nodes, nccl_logger log, void *domains,
	void *constants)
{
	(void)domains, (void)constants;
	return tuner_make(comm_id, ranks, nodes, false, log, ctx);
}

nccl_result tuner_init_v6(void **ctx, uint64_t comm_id, size_t ranks, size_t nodes, nccl_logger log, void *domains,
	void *constants)
{
	(void)domains, (void)constants;
	return tuner_make(comm_id, ranks, nodes, true, log, ctx);
}

/* to_hand reports whether an operation's algorithm is ours to choose. Of an Allreduce the other GPUs of
 * a node may know less: they need no connection of their own. */
static bool to_hand(const struct tuner *t, int func)
{
	return t != NULL && t->free &&
		(func == NCCL_ALLGATHER || func == NCCL_REDUCE_SCATTER || (func == NCCL_ALLREDUCE && t->alone));
}

/* tuner_facts_now returns what the tuner decides by. */
struct tuner_facts tuner_facts_now(const struct tuner *t)
{
	struct tuner_facts facts = t->facts;

	if (t->connected != NULL)
		facts.agreed.paired = connected_paired(t->connected);
	return facts;
}

/* asked is tuner_facts_now for an operation that NCCL is about to begin. */
static nccl_result asked(const struct tuner *t, int func, size_t bytes, struct tuner_facts *facts)
{
	*facts = t->facts;
	return t->connected == NULL ? NCCL_SUCCESS : connected_asked(t->connected, func, bytes, &facts->agreed.paired);
}

/* put_off makes what may run so dear that it runs only if nothing else may. A cost of NCCL's is never
 * made one below 0: 2.31 takes the least cost, and does not look whether it is one. */
static void put_off(float *costs, int protocols)
{
	for (int p = 0; p < protocols; p++)
		if (costs[p] >= 0)
			costs[p] += 1e9F; /* us */
}

/* Of CollNetDirect the table says -1 where NCCL sees no NVSwitch. It does without on one GPU a node,
 * and CollNet reduces every type that NCCL has: 0 is written over it. With several GPUs a node -1 may
 * also mean that one of them has no connection: there only what may run is chosen.
 *
 * What loses is put off, where NCCL would take it by itself: NVLS between nodes is CollNet as well. */
nccl_result tuner_costs(void *ctx, int func, size_t bytes, int ops, float **costs, int algorithms, int protocols,
	int registered, int *channels)
{
	static const int collnet[] = { NCCL_ALGO_COLLNET_DIRECT, NCCL_ALGO_COLLNET_CHAIN, NCCL_ALGO_NVLS };
	const struct tuner *t = ctx;
	struct tuner_facts facts;
	float *table = (float *)costs, *cost;
	nccl_result result;
	bool may;

	(void)ops, (void)channels;
	if (table == NULL || algorithms <= NCCL_ALGO_COLLNET_DIRECT || protocols <= NCCL_PROTO_SIMPLE || !to_hand(t, func) ||
		!connected_still(t->connected))
		return NCCL_SUCCESS;
	cost = &table[NCCL_ALGO_COLLNET_DIRECT * protocols + NCCL_PROTO_SIMPLE];
	may = t->alone || (t->facts.agreed.alike && *cost >= 0);
	if ((result = asked(t, func, bytes, &facts)) != NCCL_SUCCESS)
		return result;
	if (may && tuner_wins(&facts, func, bytes, registered != 0))
		*cost = 0;
	else if (!may || tuner_loses(&facts, func, bytes, registered != 0))
		for (size_t i = 0; i < sizeof(collnet) / sizeof(collnet[0]); i++)
			if (collnet[i] < algorithms)
				put_off(&table[collnet[i] * protocols], protocols);
	return NCCL_SUCCESS;
}

/* v6: NCCL 2.30. NCCL cuts an operation so that its buffer holds an eighth of the operation or less. The buffer
 * holds 8 windows of any size, so they are made as large as the operation needs. NCCL bounds them. */
nccl_result tuner_chunk(void *ctx, int func, size_t bytes, int algorithm, int protocol, int channels, size_t *chunk)
{
	const struct tuner *t = ctx;
	size_t columns, whole;

	if (chunk == NULL || channels <= 0 || algorithm != NCCL_ALGO_COLLNET_DIRECT || protocol != NCCL_PROTO_SIMPLE ||
		!to_hand(t, func) ||
		func == NCCL_ALLREDUCE)
		return NCCL_SUCCESS;
	columns = t->heads * (size_t)channels * NCCL_STEPS;
	whole = (bytes + columns - 1) / columns;
	whole = (whole + NCCL_GRAIN - 1) / NCCL_GRAIN * NCCL_GRAIN;
	if (whole > *chunk)
		*chunk = whole;
	return NCCL_SUCCESS;
}

/* v4: NCCL 2.24 to 2.27 */
static nccl_result tuner_init_v4(size_t ranks, size_t nodes, nccl_logger log, void **ctx)
{
	return tuner_make(0, ranks, nodes, false, log, ctx);
}

EXPORT const struct tuner_v4 ncclTunerPlugin_v4 = {
	.name = PLUGIN_NAME, .init = tuner_init_v4, .getCollInfo = tuner_costs, .destroy = tuner_destroy,
};

/* v3: NCCL 2.22 and 2.23 */
static nccl_result tuner_costs_v3(void *ctx, int func, size_t bytes, int ops, float **costs, int algorithms,
	int protocols, int *channels)
{
	return tuner_costs(ctx, func, bytes, ops, costs, algorithms, protocols, 0, channels);
}

EXPORT const struct tuner_v3 ncclTunerPlugin_v3 = {
	.name = PLUGIN_NAME, .init = tuner_init_v4, .getCollInfo = tuner_costs_v3, .destroy = tuner_destroy,
};

/* v2: NCCL 2.21. NCCL says whether CollNet is connected, and takes the algorithm named here at any cost. */
static nccl_result tuner_choose_v2(void *ctx, int func, size_t bytes, int collnet, int nvls, int ops,
	int *algorithm, int *protocol, int *channels)
{
	const struct tuner *t = ctx;

	(void)nvls, (void)ops, (void)channels;
	struct tuner_facts facts;
	nccl_result result;

	if (!collnet || algorithm == NULL || protocol == NULL || !to_hand(t, func) || !t->alone)
		return NCCL_SUCCESS;
	if ((result = asked(t, func, bytes, &facts)) != NCCL_SUCCESS)
		return result;
	if (tuner_wins(&facts, func, bytes, false)) {
		*algorithm = NCCL_ALGO_COLLNET_DIRECT;
		*protocol = NCCL_PROTO_SIMPLE;
	}
	return NCCL_SUCCESS;
}

EXPORT const struct tuner_v2 ncclTunerPlugin_v2 = {
	.name = PLUGIN_NAME, .init = tuner_init_v4, .getCollInfo = tuner_choose_v2, .destroy = tuner_destroy,
};

/* v1: NCCL 2.20. It has no context, so the tuner cannot tell communicators apart, nor pairs from others. All ranks
 * answer alike, from NCCL's arguments of each call and from the agreement of the first communicator with CollNet. A
 * communicator with another agreement, or with several GPUs a node, ends that: all choices are NCCL's from then on. */
static struct tuner of_v1;
static enum { NONE, ONE, MIXED } known_v1;

static nccl_result tuner_init_v1(size_t ranks, size_t nodes, nccl_logger log)
{
	struct tuner *t;
	nccl_result result = tuner_make(0, ranks, nodes, false, log, (void **)&t);

	if (result != NCCL_SUCCESS)
		return result;
	if (nodes > 1 && ranks != nodes) {
		__atomic_store_n(&known_v1, MIXED, __ATOMIC_RELEASE);
	} else if (t->connected != NULL && known_v1 == NONE) {
		of_v1 = *t;
		of_v1.connected = NULL;
		of_v1.facts.agreed.paired = true;
		__atomic_store_n(&known_v1, ONE, __ATOMIC_RELEASE);
	} else if (t->connected != NULL && (t->facts.agreed.switched != of_v1.facts.agreed.switched ||
			t->facts.agreed.multicast != of_v1.facts.agreed.multicast || t->facts.nodes != of_v1.facts.nodes)) {
		__atomic_store_n(&known_v1, MIXED, __ATOMIC_RELEASE);
	}
	return tuner_destroy(t);
}

static nccl_result tuner_choose_v1(int func, size_t bytes, int collnet, int nvls, int ops, int *algorithm,
	int *protocol, int *channels)
{
	(void)nvls, (void)ops, (void)channels;
	if (collnet && algorithm != NULL && protocol != NULL && __atomic_load_n(&known_v1, __ATOMIC_ACQUIRE) == ONE &&
		to_hand(&of_v1, func) && tuner_wins(&of_v1.facts, func, bytes, false)) {
		*algorithm = NCCL_ALGO_COLLNET_DIRECT;
		*protocol = NCCL_PROTO_SIMPLE;
	}
	return NCCL_SUCCESS;
}

static nccl_result tuner_destroy_v1(void) { return NCCL_SUCCESS; }

EXPORT const struct tuner_v1 ncclTunerPlugin_v1 = {
	.name = PLUGIN_NAME, .init = tuner_init_v1, .getCollInfo = tuner_choose_v1, .destroy = tuner_destroy_v1,
};
