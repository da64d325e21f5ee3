/* NCCL's profiler, v4 (NCCL 2.27) and v5 (2.28 and later), where NCCL_PROFILER_PLUGIN names this library: what NCCL
 * does is remembered for the trace of this process. Elsewhere it asks for no event, for NCCL also looks for a profiler
 * in the library that its net plugin is of. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "_cgo_export.h"
#include "plugin.h"
#include "profiler.h"

struct communicator {
	uint64_t id;
	int rank, ranks;
};

/* A handle is a kind and a number, not a pointer: by the time NCCL uses it, the record may hold another one. */
enum kind { OPERATION = 1, PROXY = 2, STEP = 3, MESSAGE = 4, GROUP = 5 };
enum { KIND_BITS = 3 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct profiler_operation operations[PROFILER_OPERATIONS];
static struct profiler_message messages[PROFILER_MESSAGES];
static uint64_t last_operation, last_message;
static bool asking; /* once it is, it stays: see set_events */

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void *handle_of(enum kind kind, uint64_t number) { return (void *)(uintptr_t)(number << KIND_BITS | kind); }
static enum kind kind_of(const void *handle) { return (uintptr_t)handle & ((1 << KIND_BITS) - 1); }
static uint64_t number_of(const void *handle) { return (uintptr_t)handle >> KIND_BITS; }

/* The operation with a number, or NULL if a newer one has taken its place in the ring. */
static struct profiler_operation *operation(uint64_t number)
{
	struct profiler_operation *o = &operations[number % PROFILER_OPERATIONS];

	return number != 0 && o->number == number ? o : NULL;
}

static void put(char *to, size_t size, const char *from) { snprintf(to, size, "%s", from != NULL ? from : "?"); }

static void *start_operation(const struct communicator *c, const struct profiler_event *e)
{
	const uint64_t number = ++last_operation;
	struct profiler_operation *o = &operations[number % PROFILER_OPERATIONS];

	*o = (struct profiler_operation){
		.number = number, .communicator = c->id, .rank = c->rank, .ranks = c->ranks, .posted = now(),
	};
	if (e->type == NCCL_PROFILE_COLL) {
		o->sequence = e->coll.sequence;
		o->count = e->coll.count;
		o->other = e->coll.root;
		o->channels = e->coll.channels;
		put(o->name, sizeof(o->name), e->coll.function);
		put(o->type, sizeof(o->type), e->coll.type);
		put(o->algorithm, sizeof(o->algorithm), e->coll.algorithm);
		put(o->protocol, sizeof(o->protocol), e->coll.protocol);
	} else {
		o->count = e->p2p.count;
		o->other = e->p2p.peer;
		o->channels = e->p2p.channels;
		put(o->name, sizeof(o->name), e->p2p.function);
		put(o->type, sizeof(o->type), e->p2p.type);
	}
	return handle_of(OPERATION, number);
}

static void *start_proxy(const struct profiler_event *e)
{
	struct profiler_operation *o;

	/* The operation may be long ago, or be one of another process that uses this process's device for its GPU: then the
	 * proxy belongs to none. It has a handle all the same, without which NCCL 2.27 crashes at the first message. */
	if (e->proxy.pid != getpid() || kind_of(e->parent) != OPERATION || (o = operation(number_of(e->parent))) == NULL)
		return handle_of(PROXY, 0);
	o->proxies++;
	o->running++;
	return handle_of(PROXY, o->number);
}

static void *start_message(const struct profiler_event *e)
{
	const uint64_t number = last_message + 1;

	if (e->net.id != MCAST_NET_EVENT_ID || kind_of(e->parent) != STEP)
		return NULL;
	last_message = number;
	messages[number % PROFILER_MESSAGES] = (struct profiler_message){
		.number = number, .operation = number_of(e->parent), .is = *(const struct mcast_net_event *)e->net.data,
	};
	return handle_of(MESSAGE, number);
}

static nccl_result start(void *ctx, void **handle, struct profiler_event *e)
{
	if (handle == NULL)
		return NCCL_SUCCESS;
	*handle = NULL;
	if (e == NULL)
		return NCCL_SUCCESS;
	if (ctx == NULL) { /* begin failed, and the mask of the others counts: only what NCCL needs, see start_proxy */
		if (e->type == NCCL_PROFILE_PROXY_OP)
			*handle = handle_of(PROXY, 0);
		return NCCL_SUCCESS;
	}
	pthread_mutex_lock(&lock);
	switch (e->type) {
	case NCCL_PROFILE_GROUP: /* without which NCCL 2.27 tells of no operation */
		*handle = handle_of(GROUP, 0);
		break;
	case NCCL_PROFILE_COLL:
	case NCCL_PROFILE_P2P:
		*handle = start_operation(ctx, e);
		break;
	case NCCL_PROFILE_PROXY_OP:
		*handle = start_proxy(e);
		break;
	case NCCL_PROFILE_PROXY_STEP:
		*handle = kind_of(e->parent) == PROXY ? handle_of(STEP, number_of(e->parent)) : NULL;
		break;
	case NCCL_PROFILE_NET:
		*handle = start_message(e);
		break;
	default:
		break;
	}
	pthread_mutex_unlock(&lock);
	return NCCL_SUCCESS;
}

/* In v4 the type is a byte; what stands behind it is not said. */
static nccl_result start_v4(void *ctx, void **handle, struct profiler_event *e)
{
	struct profiler_event wide;

	if (e == NULL)
		return start(ctx, handle, NULL);
	wide = *e;
	wide.type = *(const uint8_t *)e;
	return start(ctx, handle, &wide);
}

static nccl_result stop(void *handle)
{
	struct profiler_operation *o;

	pthread_mutex_lock(&lock);
	switch (kind_of(handle)) {
	case OPERATION:
		if ((o = operation(number_of(handle))) != NULL)
			o->launched = now();
		break;
	case PROXY:
		if ((o = operation(number_of(handle))) != NULL && o->running > 0) {
			o->running--;
			o->ended = now();
		}
		break;
	default:
		break;
	}
	pthread_mutex_unlock(&lock);
	return NCCL_SUCCESS;
}

static nccl_result record(void *handle, int state, union profiler_state *s)
{
	struct profiler_message *m = &messages[number_of(handle) % PROFILER_MESSAGES];
	struct profiler_operation *o;

	pthread_mutex_lock(&lock);
	if (kind_of(handle) == PROXY && state == NCCL_PROFILE_PROXY_TURN) {
		if ((o = operation(number_of(handle))) != NULL && o->begun == 0)
			o->begun = now();
	} else if (kind_of(handle) == MESSAGE && state == NCCL_PROFILE_NET_UPDATE && s != NULL && s->net.data != NULL) {
		if (m->number == number_of(handle))
			m->is = *(const struct mcast_net_event *)s->net.data;
	}
	pthread_mutex_unlock(&lock);
	return NCCL_SUCCESS;
}

enum { EVENTS = NCCL_PROFILE_COLL | NCCL_PROFILE_P2P | NCCL_PROFILE_PROXY_OP | NCCL_PROFILE_NET };

/* NCCL has one mask of events for all communicators, and other threads read it while this one is made. So it is written
 * once, with what holds for the process: from the first init on that asks it stays, also where a later one fails. */
static void set_events(int *events, bool asks)
{
	pthread_mutex_lock(&lock);
	asks = asks || profiler_asks();
	__atomic_store_n(events, asks ? EVENTS : 0, __ATOMIC_RELEASE);
	__atomic_store_n(&asking, asks, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&lock);
}

static nccl_result begin(void **ctx, uint64_t id, int *events, int ranks, int rank, nccl_logger log)
{
	struct communicator *c;
	bool asks;

	if (ctx == NULL || events == NULL)
		return NCCL_INVALID_ARGUMENT;
	*ctx = NULL;
	if (mcast_forked()) { /* in which another thread may have held the lock; the mask is a copy of the parent's */
		if (!profiler_asks())
			*events = 0;
		return NCCL_SUCCESS;
	}
	plugin_log_to(log);
	asks = goProfilerInit();
	if (asks && (c = calloc(1, sizeof(*c))) != NULL) {
		*c = (struct communicator){id, rank, ranks};
		*ctx = c;
	}
	set_events(events, asks);
	return NCCL_SUCCESS;
}

bool profiler_asks(void) { return __atomic_load_n(&asking, __ATOMIC_ACQUIRE); }

static nccl_result init_v4(void **ctx, int *events, const char *name, uint64_t id, int nodes, int ranks, int rank,
	nccl_logger log)
{
	(void)name, (void)nodes;
	return begin(ctx, id, events, ranks, rank, log);
}

static nccl_result init_v5(void **ctx, uint64_t id, int *events, const char *name, int nodes, int ranks, int rank,
	nccl_logger log)
{
	(void)name, (void)nodes;
	return begin(ctx, id, events, ranks, rank, log);
}

static nccl_result finalize(void *ctx)
{
	free(ctx);
	return NCCL_SUCCESS;
}

EXPORT const struct profiler_v4 ncclProfiler_v4 = {
	.name = PLUGIN_NAME, .init = init_v4, .startEvent = start_v4, .stopEvent = stop, .recordEventState = record,
		.finalize = finalize,
};
EXPORT const struct profiler_v5 ncclProfiler_v5 = {
	.name = PLUGIN_NAME, .init = init_v5, .startEvent = start, .stopEvent = stop, .recordEventState = record,
		.finalize = finalize,
};

uint64_t profiler_copy(struct profiler_operation o[PROFILER_OPERATIONS], struct profiler_message m[PROFILER_MESSAGES])
{
	uint64_t at;

	pthread_mutex_lock(&lock);
	memcpy(o, operations, sizeof(operations));
	memcpy(m, messages, sizeof(messages));
	at = now();
	pthread_mutex_unlock(&lock);
	return at;
}
