/* A profiler plugin of NCCL (v4: 2.27, v5: 2.28 and later) that compares the net plugin's events with NCCL's own:
 * each message's event is below a step that NCCL has started, stops once and before that step, and has as many
 * bytes as the step. At the end a line says so, or names the fault; with PROFILER_SHOW=N it prints the first N events.
 *
 *   gcc -shared -fPIC -O2 -I ncclnet -o libnccl-profiler-held.so ncclnet/testdata/profiler/profiler.c
 *   NCCL_PROFILER_PLUGIN=./libnccl-profiler-held.so ...
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mcast.h"

enum { COLL = 1 << 1, P2P = 1 << 2, PROXY_OP = 1 << 3, PROXY_STEP = 1 << 4, NET = 1 << 7 };
/* States at whose telling a step's bytes are its own: later ones may come with those of the step after it. */
enum { STATE_SEND_WAIT = 9, STATE_RECV_FLUSH_WAIT = 11, STATE_NET_UPDATE = 21 };
enum { EVENTS = 1 << 20 };

/* What descriptors of v4 and v5 have alike; the type is one byte in v4 and eight in v5, of which one tells enough. */
struct descriptor {
	uint8_t type, more[7];
	void *parent;
	int rank;
	union {
		struct { int64_t id; void *data; } net;
		struct { int step; } step;
		struct { int pid; uint8_t channel; int peer, steps, chunk, sends; } op;
	};
};
union state { size_t moved; void *data; };

struct event {
	int type, rank;
	struct event *parent;
	bool stopped;
	bool updated, sends;
	size_t moved;              /* bytes of a step, by NCCL */
	int messages;              /* below a step */
	struct mcast_net_event is; /* of a message */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct event events[EVENTS];
static int count, rank_of = -1;
static char wrong[200];
static int wrongs;

#define WRONG(...) (wrongs++ == 0 ? (void)snprintf(wrong, sizeof(wrong), __VA_ARGS__) : (void)0)

static int start(void *context, void **handle, struct descriptor *d)
{
	const int type = d->type & (COLL | P2P | PROXY_OP | PROXY_STEP | NET);
	struct event *e, *parent = d->parent;

	(void)context;
	*handle = NULL;
	if (type == 0)
		return 0;
	pthread_mutex_lock(&lock);
	if (count == EVENTS) {
		WRONG("more than %d events", EVENTS);
		pthread_mutex_unlock(&lock);
		return 0;
	}
	e = &events[count];
	*e = (struct event){.type = type, .rank = d->rank, .parent = type == COLL || type == P2P ? NULL : parent};
	if (type == PROXY_OP)
		e->sends = d->op.sends != 0;
	if (type == NET) {
		if (d->net.id != MCAST_NET_EVENT_ID || d->net.data == NULL)
			WRONG("a message's event has id %#llx", (unsigned long long)d->net.id);
		else
			e->is = *(struct mcast_net_event *)d->net.data;
		if (parent == NULL || parent->type != PROXY_STEP || parent->stopped)
			WRONG("message %u of connection %u is not below a step that goes on", e->is.sequence, e->is.connection);
		else if (parent->messages++ > 0)
			WRONG("a step has several messages");
		else if (parent->parent != NULL && parent->parent->sends != e->is.sending)
			WRONG("a %s is below a step of the other direction", e->is.sending ? "send" : "receive");
		if (e->is.outcome != MCAST_NET_IN_FLIGHT || e->is.posted || e->is.done)
			WRONG("message %u of connection %u starts with an outcome or moments", e->is.sequence, e->is.connection);
	}
	count++;
	*handle = e;
	pthread_mutex_unlock(&lock);
	return 0;
}

static int record(void *handle, int state, union state *s)
{
	struct event *e = handle;

	if (e == NULL || s == NULL)
		return 0;
	pthread_mutex_lock(&lock);
	if (e->type == PROXY_STEP && (state == STATE_SEND_WAIT || state == STATE_RECV_FLUSH_WAIT))
		e->moved = s->moved;
	else if (e->type == NET && state == STATE_NET_UPDATE) {
		e->is = *(struct mcast_net_event *)s->data;
		e->updated = true;
	}
	pthread_mutex_unlock(&lock);
	return 0;
}

static void check(const struct event *e)
{
	const struct mcast_net_event *m = &e->is;

	if (!e->updated || m->outcome == MCAST_NET_IN_FLIGHT)
		WRONG("message %u of connection %u stops without an outcome", m->sequence, m->connection);
	if (e->parent != NULL && e->parent->stopped)
		WRONG("message %u of connection %u stops after its step", m->sequence, m->connection);
	if (m->outcome == MCAST_NET_DONE &&
		!(m->posted && m->posted <= m->begun && m->begun <= m->moved && m->moved <= m->done))
		WRONG("message %u of connection %u: its moments are not in order", m->sequence, m->connection);
}

static int stop(void *handle)
{
	struct event *e = handle;

	if (e == NULL)
		return 0;
	pthread_mutex_lock(&lock);
	if (e->type == NET) {
		if (e->stopped)
			WRONG("message %u of connection %u stops twice", e->is.sequence, e->is.connection);
		check(e);
	}
	/* NCCL tells the bytes of a receive with a state that comes after the message is done. */
	if (e->type == PROXY_STEP)
		for (struct event *m = e + 1; m < events + count; m++)
			if (m->type == NET && m->parent == e) {
				if (m->is.outcome == MCAST_NET_DONE && m->is.bytes != e->moved)
					WRONG("message %u of connection %u has %llu bytes, its step %zu", m->is.sequence, m->is.connection,
						(unsigned long long)m->is.bytes, e->moved);
				break;
			}
	e->stopped = true;
	pthread_mutex_unlock(&lock);
	return 0;
}

static void show(const struct event *e)
{
	static const char *const over[] = {"?", "TCP", "shm", "RDMA"},
		*const outcome[] = {"in flight", "done", "failed", "abandoned"};
	const struct mcast_net_event *m = &e->is;

	printf("%-7s %u of connection %u over %s, %u lane%s, tag %d, peer %s: %llu bytes, %s; waited %.1f us, moved for %.1f "
		"us, ended %.1f us later\n",
		m->sending ? "send" : "receive", m->sequence, m->connection, over[m->over], m->lanes, m->lanes == 1 ? "" : "s",
		m->tag, m->peer,
		(unsigned long long)m->bytes, outcome[m->outcome], (double)(m->begun - m->posted) / 1e3,
		(double)(m->moved - m->begun) / 1e3,
		(double)(m->done - m->moved) / 1e3);
}

static int finalize(void *context)
{
	const char *most = getenv("PROFILER_SHOW");
	unsigned long long bytes[2] = {0}, messages[2] = {0};
	int i, shown = most != NULL ? atoi(most) : 0, steps = 0, running = 0, ended[4] = {0};

	(void)context;
	pthread_mutex_lock(&lock);
	for (i = 0; i < count; i++) {
		const struct event *e = &events[i];

		steps += e->type == PROXY_STEP;
		if (e->type != NET)
			continue;
		messages[e->is.sending]++;
		bytes[e->is.sending] += e->is.bytes;
		running += !e->stopped;
		ended[e->is.outcome & 3]++;
		if (shown-- > 0)
			show(e);
	}
	printf("profiler, rank %d: %d steps; %llu sends, %llu bytes; %llu receives, %llu bytes; %d done, %d failed, %d "
		"abandoned, %d never stopped; %d wrong%s%s\n",
		rank_of, steps, messages[1], bytes[1], messages[0], bytes[0], ended[MCAST_NET_DONE], ended[MCAST_NET_FAILED],
		ended[MCAST_NET_ABANDONED], running, wrongs, wrongs ? ": " : "", wrong);
	fflush(stdout);
	count = 0; /* of the next communicator */
	pthread_mutex_unlock(&lock);
	return 0;
}

static int begin(void **context, int *wanted, int rank)
{
	static int nothing;

	*context = &nothing; /* NCCL finalizes what is not NULL */
	*wanted = COLL | P2P | PROXY_OP | PROXY_STEP | NET;
	rank_of = rank;
	return 0;
}

static int init_v4(void **context, int *wanted, const char *name, uint64_t id, int nodes, int ranks, int rank,
	void *log)
{
	(void)name, (void)id, (void)nodes, (void)ranks, (void)log;
	return begin(context, wanted, rank);
}

static int init_v5(void **context, uint64_t id, int *wanted, const char *name, int nodes, int ranks, int rank,
	void *log)
{
	(void)name, (void)id, (void)nodes, (void)ranks, (void)log;
	return begin(context, wanted, rank);
}

struct table {
	const char *name;
	void *init;
	int (*start)(void *, void **, struct descriptor *);
	int (*stop)(void *);
	int (*record)(void *, int, union state *);
	int (*finalize)(void *);
};
struct table ncclProfiler_v4 = {"held", (void *)init_v4, start, stop, record, finalize};
struct table ncclProfiler_v5 = {"held", (void *)init_v5, start, stop, record, finalize};
