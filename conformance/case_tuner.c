/* The tuner: which entries it may write into NCCL's table of costs. The tables were
 * recorded from NCCL 2.30.7: -1 where an algorithm cannot run. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "case_coll.h"

enum { GUARD_COSTS = 32, MAX_COSTS = 16 * 4, SIZES = 6 };

static const size_t sizes[SIZES] = { 0, 8, 1024, 131072, 16 << 20, (size_t)1 << 32 };
static const float guard = 12345.5f;

struct costs {
	float before[GUARD_COSTS];
	float table[MAX_COSTS + GUARD_COSTS];
	int algos, protos;
};

static float *cost(struct costs *c, int algo, int proto)
{
	return &c->table[algo * c->protos + proto];
}

/* Ring and Tree run, everything else cannot; CollNet as told. */
static void costs_reset(struct costs *c, int algos, int protos, int func, float collnet)
{
	bool sums = func == ABI_ALLREDUCE, gathers = func == ABI_ALLGATHER || func == ABI_REDUCE_SCATTER;

	c->algos = algos;
	c->protos = protos;
	for (int i = 0; i < GUARD_COSTS; i++)
		c->before[i] = guard;
	for (int i = 0; i < MAX_COSTS + GUARD_COSTS; i++)
		c->table[i] = i < algos * protos ? ABI_COST_IGNORE : guard;
	for (int proto = 0; proto < protos; proto++) {
		*cost(c, ABI_RING, proto) = 50.5f + (float)proto;
		if (sums)
			*cost(c, ABI_TREE, proto) = 36.5f + (float)proto;
	}
	if (sums || gathers)
		*cost(c, ABI_COLLNET_DIRECT, ABI_SIMPLE) = collnet;
	if (sums)
		*cost(c, ABI_COLLNET_CHAIN, ABI_SIMPLE) = collnet;
}

static const char *func_name(int func)
{
	static const char *const name[] = { "Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce", "SendRecv" };

	return name[func];
}

/* A tuner v2 names its choice, and NCCL 2.21 takes it as it stands: there is no -1 that
 * would stop it. */
static void ask_choice(struct rank *r, void *ctx, struct costs *c, int func, size_t bytes, bool collnet)
{
	int algo = -1, proto = -1, channels = 0;
	bool covered = func >= ABI_ALLGATHER && func <= ABI_ALLREDUCE;

	OK(r->tuner.calls.choose(ctx, func, bytes, collnet, 0, 1, &algo, &proto, &channels));
	EXPECT_RULE(TUNER_TABLE, algo >= -1 && algo < c->algos && proto >= -1 && proto < c->protos,
		"%s of %zu bytes: expected an algorithm and a protocol that exist or -1, got %d, %d", func_name(func), bytes,
		algo, proto);
	if (algo == ABI_COLLNET_DIRECT || algo == ABI_COLLNET_CHAIN)
		EXPECT_RULE(covered ? TUNER_UNCONNECTED : TUNER_COLLECTIVES, covered && collnet,
			"%s of %zu bytes: expected no choice of algorithm %d, which cannot run, got it", func_name(func), bytes, algo);
}

/* The call, and checks that hold for any opinion of the tuner on speed. collnet: this
 * library's CollNet is connected and may be chosen over a -1. */
static void ask(struct rank *r, void *ctx, struct costs *c, int func, size_t bytes, bool collnet)
{
	struct costs was = *c;
	size_t chunk = 1 << 20;
	int channels = 0;

	if (r->tuner.calls.choose)
		ask_choice(r, ctx, c, func, bytes, collnet);
	OK(tuner_info(&r->tuner, ctx, func, bytes, collnet, 0, 1, c->table, c->algos, c->protos, 0, &channels));
	EXPECT_RULE(TUNER_TABLE, memcmp(c->before, was.before, sizeof(c->before)) == 0 &&
		memcmp(c->table + c->algos * c->protos, was.table + c->algos * c->protos,
			sizeof(c->table) - sizeof(float) * (size_t)(c->algos * c->protos)) == 0,
		"%s of %zu bytes: expected %d x %d costs written at most, got one outside", func_name(func), bytes,
		c->algos, c->protos);
	EXPECT_RULE(TUNER_COST, channels >= 0 && channels <= 64, "%s of %zu bytes: expected 0 to 64 channels, got %d",
		func_name(func), bytes, channels);
	OK(tuner_chunk(&r->tuner, ctx, func, bytes, ABI_RING, ABI_SIMPLE, 2, &chunk));
	EXPECT_RULE(TUNER_COST, chunk > 0, "%s of %zu bytes: expected a chunk size above 0, got 0", func_name(func), bytes);
	for (int algo = 0; algo < c->algos; algo++)
		for (int proto = 0; proto < c->protos; proto++) {
			float after = *cost(c, algo, proto), then = *cost(&was, algo, proto);
			bool is_collnet = algo == ABI_COLLNET_DIRECT || algo == ABI_COLLNET_CHAIN;
			bool covered = func >= ABI_ALLGATHER && func <= ABI_ALLREDUCE;

			EXPECT_RULE(TUNER_COST, !isnan(after), "%s of %zu bytes: expected a cost for algorithm %d, protocol %d, got NaN",
				func_name(func), bytes, algo, proto);
			EXPECT_RULE(TUNER_NEGATIVE, after >= 0 || (then < 0 && after == then),
				"%s of %zu bytes: expected the cost %g of algorithm %d, protocol %d to stay or one of 0 and more, got %g",
				func_name(func), bytes, (double)then, algo, proto, (double)after);
			if (then >= 0 || (is_collnet && covered && collnet))
				continue;
			EXPECT_RULE(is_collnet && covered ? TUNER_UNCONNECTED : TUNER_COLLECTIVES, after < 0,
				"%s of %zu bytes: expected the -1 of algorithm %d, protocol %d to stay, got %g",
				func_name(func), bytes, algo, proto, (double)after);
		}
}

static void ask_all(struct rank *r, void *ctx, bool collnet)
{
	static const int algos[] = { ABI_ALGOS, ABI_NVLS_TREE + 1 };	/* 2.23.4 and later; 2.22 */
	struct costs *c = calloc(1, sizeof(*c));

	EXPECT(c, "expected memory, got none");
	for (int a = 0; a < 2; a++)
		for (int func = ABI_BROADCAST; func <= ABI_SENDRECV; func++)
			for (int i = 0; i < SIZES; i++) {
				costs_reset(c, algos[a], ABI_PROTOS, func, ABI_COST_IGNORE);
				ask(r, ctx, c, func, sizes[i], collnet);
			}
	free(c);
}

CASE(tuner_init, "tuner.init", TUNER, 2, 2, TUNER_LIFE,
	"contexts of 1, 2 and 1000 nodes, several at once, closed in another order")
{
	static const size_t nodes[] = { 1, 2, 1000 };
	void *ctx[3] = { NULL };

	for (int round = 0; round < 2; round++) {
		for (size_t i = 0; i < 3; i++)
			OK(tuner_init(&r->tuner, r->seed + i, 8 * nodes[i], nodes[i], &ctx[i]));
		OK(tuner_destroy(&r->tuner, ctx[1]));
		ask_all(r, ctx[0], false);
		ask_all(r, ctx[2], false);
		OK(tuner_destroy(&r->tuner, ctx[0]));
		OK(tuner_destroy(&r->tuner, ctx[2]));
	}
}

CASE(tuner_table, "tuner.table", TUNER, 2, 2, TUNER_TABLE, "tables of 6 and 7 algorithms, with guards on both sides")
{
	void *ctx = NULL;

	OK(tuner_init(&r->tuner, r->seed, 64, 8, &ctx));
	ask_all(r, ctx, false);
	OK(tuner_destroy(&r->tuner, ctx));
}

CASE(tuner_unconnected, "tuner.unconnected", TUNER, 2, 2, TUNER_UNCONNECTED,
	"each collective and size while CollNet is not connected")
{
	void *ctx = NULL;

	if (r->net.table)
		OK(net_init(&r->net, r->seed, NULL));
	if (r->coll.table)
		OK(coll_init(&r->coll, r->seed, NULL));
	OK(tuner_init(&r->tuner, r->seed, (size_t)r->ranks, (size_t)r->ranks, &ctx));
	ask_all(r, ctx, false);
	OK(tuner_destroy(&r->tuner, ctx));
}

/* connected_open connects CollNet and then makes its tuner, as NCCL does, with so many GPUs a node. */
static struct group connected_open(struct rank *r, size_t gpus, void **ctx)
{
	struct group g;

	if (!r->coll.table)
		not_offered("the library has no CollNet");
	group_init(r);
	g = group_open(r);
	coll_supports(r, ABI_FLOAT32, ABI_SUM);
	OK(tuner_init(&r->tuner, r->seed, gpus * (size_t)r->ranks, (size_t)r->ranks, ctx));
	return g;
}

static void connected_close(struct rank *r, struct group *g, void *ctx)
{
	OK(tuner_destroy(&r->tuner, ctx));
	group_close(g);
	group_finalize(r);
}

CASE(tuner_connected, "tuner.connected", TUNER, 2, 2, TUNER_COLLECTIVES,
	"the same with CollNet connected, and after it was closed")
{
	struct costs c;
	struct group g;
	void *ctx = NULL;
	bool taken = false;

	g = connected_open(r, 1, &ctx);
	ask_all(r, ctx, true);
	for (int i = 0; i < SIZES; i++) {
		costs_reset(&c, ABI_ALGOS, ABI_PROTOS, ABI_ALLGATHER, ABI_COST_IGNORE);
		ask(r, ctx, &c, ABI_ALLGATHER, sizes[i], true);
		taken |= *cost(&c, ABI_COLLNET_DIRECT, ABI_SIMPLE) >= 0;
	}
	if (!r->tuner.calls.choose)	/* which cannot override a -1 */
		note(taken ? "takes CollNet for AllGather" : "leaves AllGather to NCCL");
	group_close(&g);
	under(TUNER_UNCONNECTED);
	ask_all(r, ctx, false);
	OK(tuner_destroy(&r->tuner, ctx));
	group_finalize(r);
}

/* NCCL gives CollNet up when a rank or a buffer is missing, and tells nobody: but it asks reduceSupport,
 * on the thread that then makes the tuner, only where it goes on. The comm is closed much later. */
CASE(tuner_given_up, "tuner.given-up", TUNER, 2, 2, TUNER_UNCONNECTED,
	"two communicators connect CollNet, NCCL goes on with the first one's")
{
	struct group first, second;
	void *ctx[2] = { NULL };

	if (!r->coll.table)
		not_offered("the library has no CollNet");
	group_init(r);
	first = group_open(r);
	OK(coll_init(&r->coll, r->seed + 1, NULL));
	second = group_open(r);
	coll_supports(r, ABI_FLOAT32, ABI_SUM);
	for (int i = 0; i < 2; i++)
		OK(tuner_init(&r->tuner, r->seed + (uint64_t)i, (size_t)r->ranks, (size_t)r->ranks, &ctx[i]));
	under(TUNER_UNCONNECTED);
	ask_all(r, ctx[1], false);
	OK(tuner_destroy(&r->tuner, ctx[0]));
	OK(tuner_destroy(&r->tuner, ctx[1]));
	group_close(&first);
	group_close(&second);
	group_finalize(r);
}

/* The same where CollNet may run by NCCL's own costs, dearer than Ring or cheaper. */
static void ask_dear_and_cheap(struct rank *r, void *ctx, struct costs *c, int func, size_t bytes)
{
	costs_reset(c, ABI_ALGOS, ABI_PROTOS, func, 111);
	ask(r, ctx, c, func, bytes, true);
	costs_reset(c, ABI_ALGOS, ABI_PROTOS, func, 11);
	ask(r, ctx, c, func, bytes, true);
}

/* CollNet connected, and what may run by NCCL's own costs. */
static void ask_running(struct rank *r, enum rule rule)
{
	struct costs c;
	struct group g;
	void *ctx = NULL;

	g = connected_open(r, 1, &ctx);
	under(rule);
	for (int func = ABI_BROADCAST; func <= ABI_SENDRECV; func++)
		for (int i = 0; i < SIZES; i++)
			ask_dear_and_cheap(r, ctx, &c, func, sizes[i]);
	connected_close(r, &g, ctx);
}

CASE(tuner_cost, "tuner.cost", TUNER, 2, 2, TUNER_COST,
	"CollNet dearer than Ring and cheaper: what is written is a time")
{
	ask_running(r, TUNER_COST);
}

CASE(tuner_negative, "tuner.negative", TUNER, 2, 2, TUNER_NEGATIVE, "the same: no cost is taken away")
{
	ask_running(r, TUNER_NEGATIVE);
}

/* With several GPUs a node NCCL tells by -1 that a rank has no connection, on all ranks alike; one process
 * cannot know of the others. */
CASE(tuner_crowded, "tuner.crowded", TUNER, 2, 2, TUNER_CROWDED,
	"two GPUs a node: CollNet connected, and NCCL says that it cannot run")
{
	struct costs c;
	struct group g;
	void *ctx = NULL;

	if (r->coll.table && r->tuner.calls.choose)
		not_offered("a tuner v2 names a choice, and NCCL 2.21 does not say what can run");
	g = connected_open(r, 2, &ctx);
	under(TUNER_CROWDED);
	for (int func = ABI_ALLGATHER; func <= ABI_REDUCE_SCATTER; func++)
		for (int i = 0; i < SIZES; i++) {
			costs_reset(&c, ABI_ALGOS, ABI_PROTOS, func, ABI_COST_IGNORE);
			OK(tuner_info(&r->tuner, ctx, func, sizes[i], 1, 0, 1, c.table, c.algos, c.protos, 1, &(int){ 0 }));
			EXPECT(*cost(&c, ABI_COLLNET_DIRECT, ABI_SIMPLE) < 0,
				"%s of %zu bytes: expected the -1 of CollNetDirect to stay, got %g",
				func_name(func), sizes[i], (double)*cost(&c, ABI_COLLNET_DIRECT, ABI_SIMPLE));
			ask_dear_and_cheap(r, ctx, &c, func, sizes[i]);
		}
	connected_close(r, &g, ctx);
}

/* What a tuner answered to one question: which algorithm NCCL then takes, and what windows. */
struct answer {
	int algo, proto, channels;
	size_t chunk;
};

static struct answer answer_to(struct rank *r, void *ctx, int func, size_t bytes, float collnet, int registered)
{
	struct costs c;
	struct answer a = { .algo = -1, .proto = -1, .chunk = 128 << 10 };
	float best = INFINITY;

	costs_reset(&c, ABI_ALGOS, ABI_PROTOS, func, collnet);
	OK(tuner_info(&r->tuner, ctx, func, bytes, 1, 0, 1, c.table, c.algos, c.protos, registered, &a.channels));
	for (int algo = 0; algo < c.algos; algo++)
		for (int proto = 0; proto < c.protos; proto++)
			if (*cost(&c, algo, proto) >= 0 && *cost(&c, algo, proto) < best) {
				best = *cost(&c, algo, proto);
				a.algo = algo;
				a.proto = proto;
			}
	OK(tuner_chunk(&r->tuner, ctx, func, bytes, ABI_COLLNET_DIRECT, ABI_SIMPLE, 2, &a.chunk));
	return a;
}

CASE(tuner_agreement, "tuner.agreement", TUNER, 3, 3, TUNER_AGREEMENT,
	"each collective, size and cost of CollNet, on all ranks")
{
	static const float collnets[] = { ABI_COST_IGNORE, 0.5f, 111 };
	struct group g;
	struct answer mine, all[3];
	void *ctx = NULL;

	g = connected_open(r, 1, &ctx);
	under(TUNER_AGREEMENT);
	for (int func = ABI_BROADCAST; func <= ABI_ALLREDUCE; func++)
		for (int i = 0; i < SIZES; i++)
			for (int k = 0; k < 6; k++) {
				memset(&mine, 0, sizeof(mine));
				mine = answer_to(r, ctx, func, sizes[i], collnets[k / 2], k % 2);
				exchange(r, &mine, all, sizeof(mine));
				for (int q = 0; q < r->ranks; q++)
					EXPECT(all[q].algo == mine.algo && all[q].proto == mine.proto && all[q].channels == mine.channels &&
						all[q].chunk == mine.chunk,
						"%s of %zu bytes: expected one answer on all ranks, got algorithm %d, protocol %d, %d channels, chunk %zu here "
						"and %d, %d, %d, %zu on rank %d",
						func_name(func), sizes[i], mine.algo, mine.proto, mine.channels, mine.chunk,
						all[q].algo, all[q].proto, all[q].channels, all[q].chunk, q);
			}
	connected_close(r, &g, ctx);
}
