/* Messages as NCCL was recorded to post them: traces/ring.h, tree.h, sendrecv.h. */
#include <stdlib.h>
#include <string.h>

#include "net_link.h"

enum trace {
	RING_ALLGATHER, RING_REDUCE_SCATTER, RING_ALLREDUCE, RING_REGISTERED, TREE_ALLREDUCE, SENDRECV,
	SENDRECV_REGISTERED,
};

enum { MAX_CHANNELS = 2, MAX_MESSAGES = 64, MAX_FLOWS = 2 * MAX_CHANNELS * 2 * MAX_RANKS, LL_BYTES = 524288,
	LL128_BYTES = 4915200 };

struct recorded {
	enum trace trace;
	int ranks;
	size_t bytes;			/* of the operation, for the report */
	int channels, loops, steps;
	size_t posted;			/* of a receive */
	int slots, depth;
	size_t sizes[2];		/* of a step's messages */
	int nsizes;
};

#define COUNT(...) (sizeof((size_t[]){ __VA_ARGS__ }) / sizeof(size_t))
#define FLOW(trace, ranks, bytes, channels, loops, steps, posted, slots, depth, ...) \
	{ trace, ranks, bytes, channels, loops, steps, posted, slots, depth, { __VA_ARGS__ }, COUNT(__VA_ARGS__) },
static const struct recorded recordings[] = {
#include "traces/ring.h"
#include "traces/sendrecv.h"
#include "traces/tree.h"
};

/* All messages that go one way on one comm, as this rank sees them. */
struct flow {
	void *comm;
	bool receive;
	int peer, channel;
	int posted, done;
	struct buffer slots;
	void *mhandle, *spare[2];	/* of the slots; of the other protocols' buffers */
	struct message messages[MAX_MESSAGES];
	const struct flow *after[MAX_RANKS];	/* receives that a send waits for */
	int nafter, lag;			/* message i waits for theirs i - lag */
};

struct replay {
	struct rank *r;
	const struct recorded *rec;
	struct buffer spare;		/* LL and LL128: registered on each comm, not used */
	struct flow flows[MAX_FLOWS];
	int nflows, messages;
};

/* Connections from each rank that sends to rank to, one a channel. */
struct wire {
	int from, to;
	struct link links[MAX_CHANNELS];
};

struct wires {
	struct wire wire[2 * MAX_RANKS * MAX_RANKS];
	int n;
};

static void wire(struct rank *r, struct wires *w, int from, int to)
{
	struct wire *new = &w->wire[w->n++];

	new->from = from;
	new->to = to;
	links_open(r, new->links, MAX_CHANNELS, from, to);
}

static void *comm_of(const struct wires *w, int from, int to, int channel, bool receive)
{
	for (int i = 0; i < w->n; i++)
		if (w->wire[i].from == from && w->wire[i].to == to)
			return receive ? w->wire[i].links[channel].recv : w->wire[i].links[channel].send;
	return NULL;
}

static struct flow *flow(struct replay *p, const struct wires *w, int channel, int from, int to)
{
	struct flow *f = &p->flows[p->nflows++];
	size_t bytes = p->rec->posted * (size_t)p->rec->slots;

	memset(f, 0, sizeof(*f));
	f->receive = to == p->r->rank;
	f->peer = f->receive ? from : to;
	f->channel = channel;
	f->comm = comm_of(w, from, to, channel, f->receive);
	f->slots = buffer_new(bytes, 0);
	f->spare[0] = memory(p->r, f->comm, p->spare.data, LL_BYTES);
	f->spare[1] = memory(p->r, f->comm, p->spare.data, LL128_BYTES);
	f->mhandle = memory(p->r, f->comm, f->slots.data, bytes);
	return f;
}

/* Both ways of the edge between this rank and another. */
static void edge(struct replay *p, const struct wires *w, int channel, int peer, struct flow **in, struct flow **out)
{
	*in = flow(p, w, channel, peer, p->r->rank);
	*out = flow(p, w, channel, p->r->rank, peer);
}

static void ring(struct replay *p, const struct wires *w, int channel)
{
	int n = p->r->ranks, rank = p->r->rank;
	struct flow *in = flow(p, w, channel, (rank + n - 1) % n, rank);
	struct flow *out = flow(p, w, channel, rank, (rank + 1) % n);

	out->after[out->nafter++] = in;
	out->lag = p->rec->nsizes;
}

/* A binary tree over the ranks, the second one with the ranks reversed. */
static void tree(struct replay *p, const struct wires *w, int channel)
{
	int n = p->r->ranks, place = channel ? n - 1 - p->r->rank : p->r->rank;
	struct flow *up = NULL, *down = NULL, *in[2], *out[2];
	int children = 0;

	if (place > 0) {
		int parent = (place - 1) / 2;

		edge(p, w, channel, channel ? n - 1 - parent : parent, &down, &up);
	}
	for (int child = 2 * place + 1; child <= 2 * place + 2 && child < n; child++, children++)
		edge(p, w, channel, channel ? n - 1 - child : child, &in[children], &out[children]);
	for (int i = 0; i < children; i++) {
		if (up)
			up->after[up->nafter++] = in[i];
		for (int k = 0; k < (down ? 1 : children); k++)
			out[i]->after[out[i]->nafter++] = down ? down : in[k];
	}
}

static void pairs(struct replay *p, const struct wires *w)
{
	struct flow *in, *out;

	for (int i = 1; i < p->r->ranks; i++)
		edge(p, w, 0, (p->r->rank + i) % p->r->ranks, &in, &out);
}

static uint64_t key(const struct replay *p, const struct flow *f, int i)
{
	int from = f->receive ? f->peer : p->r->rank, to = f->receive ? p->r->rank : f->peer;

	return key_of(p->r, (uint64_t)(p->rec - recordings) << 32 | (uint64_t)i, (uint64_t)(from * MAX_RANKS + to),
		(uint64_t)f->channel);
}

/* Whether a rank has received the data that it forwards as message i of a send.
 * The first step of a loop sends the rank's own data. */
static bool ready(const struct replay *p, const struct flow *f, int i)
{
	if (f->receive || f->nafter == 0 || (f->lag && i / f->lag % p->rec->steps == 0))
		return true;
	for (int a = 0; a < f->nafter; a++)
		if (f->after[a]->done <= i - f->lag)
			return false;
	return true;
}

static void *slot(const struct replay *p, const struct flow *f, int i)
{
	return f->slots.data + p->rec->posted * (size_t)(i % p->rec->slots);
}

static void prepare(const struct replay *p, struct flow *f, int i)
{
	struct message *m = &f->messages[i];

	*m = (struct message){
		.comm = f->comm, .receive = f->receive, .data = slot(p, f, i), .mhandle = f->mhandle,
		.size = f->receive ? p->rec->posted : p->rec->sizes[i % p->rec->nsizes],
		.tag = f->receive ? f->peer : p->r->rank,	/* of the sender */
	};
	if (f->receive)
		memset(m->data, 0xc5, p->rec->posted);
	else
		pattern_fill(m->data, m->size, key(p, f, i));
}

/* A finished message: the bytes of a receive; the slot of a send is free. */
static void finish(const struct replay *p, struct flow *f, int i)
{
	struct message *m = &f->messages[i];
	size_t size = p->rec->sizes[i % p->rec->nsizes];

	if (!f->receive) {
		memset(m->data, 0x3a, m->size);
		return;
	}
	EXPECT_RULE(NET_SIZE, (size_t)m->got == size, "message %d of rank %d: expected %zu bytes, got %d", i, f->peer, size,
		m->got);
	under(NET_BYTES);
	pattern_check("recorded operation", m->data, size, key(p, f, i));
	under(NET_GUARDS);
	for (size_t at = size; at < p->rec->posted && at < size + 4096; at++)
		EXPECT(((unsigned char *)m->data)[at] == 0xc5, "message %d of rank %d: expected %zu bytes written, got byte %zu",
			i, f->peer, size, at);
	under(NET_COMPLETION);
}

static bool turn(struct replay *p, bool *busy)
{
	bool more = false;

	under(NET_COMPLETION);
	for (int k = 0; k < p->nflows; k++) {
		struct flow *f = &p->flows[k];
		int room = p->rec->slots < p->rec->depth ? p->rec->slots : p->rec->depth;

		while (f->posted < p->messages && f->posted - f->done < room && ready(p, f, f->posted)) {
			prepare(p, f, f->posted);
			if (!message_post(p->r, &f->messages[f->posted]))
				break;
			f->posted++;
			*busy = true;
		}
		if (f->done < f->posted && message_test(p->r, &f->messages[f->done])) {
			finish(p, f, f->done++);
			*busy = true;
		}
		more |= f->done < p->messages;
	}
	return more;
}

static void run(struct rank *r, const struct recorded *rec, const struct wires *w)
{
	struct replay *p = calloc(1, sizeof(*p));
	bool busy;

	EXPECT(p, "expected memory, got none");
	p->r = r;
	p->rec = rec;
	p->spare = buffer_new(LL128_BYTES, 0);
	p->messages = rec->loops * rec->steps * rec->nsizes;
	for (int channel = 0; channel < rec->channels; channel++) {
		if (rec->trace <= RING_REGISTERED)
			ring(p, w, channel);
		else if (rec->trace == TREE_ALLREDUCE)
			tree(p, w, channel);
		else
			pairs(p, w);
	}
	do {
		busy = false;
		if (!turn(p, &busy))
			break;
		breathe(r, busy);
	} while (true);
	for (int k = 0; k < p->nflows; k++) {
		struct flow *f = &p->flows[k];

		guards_check("slots", NET_GUARDS, &f->slots, f->slots.size);
		OK(net_dereg_mr(&r->net, f->comm, f->spare[0]));
		OK(net_dereg_mr(&r->net, f->comm, f->spare[1]));
		OK(net_dereg_mr(&r->net, f->comm, f->mhandle));
		buffer_free(&f->slots);
	}
	buffer_free(&p->spare);
	free(p);
	barrier(r);
}

/* Rings and trees need neighbours, pairs need everybody: all connections are
 * made first, two channels each, as in the recording. */
static void replay(struct rank *r, enum trace trace)
{
	struct wires *w = calloc(1, sizeof(*w));
	int n = r->ranks;

	EXPECT(w, "expected memory, got none");
	net_begin(r);
	for (int from = 0; from < n; from++)
		for (int to = 0; to < n; to++)
			if (from != to && (trace > RING_REGISTERED || to == (from + 1) % n))
				wire(r, w, from, to);
	for (size_t i = 0; i < sizeof(recordings) / sizeof(recordings[0]); i++)
		if (recordings[i].trace == trace && recordings[i].ranks == n)
			run(r, &recordings[i], w);
	for (int i = 0; i < w->n; i++)
		links_close(r, w->wire[i].links, MAX_CHANNELS);
	OK(net_finalize(&r->net, r->net.ctx));
	free(w);
}

#define TRACE(id, n, name, trace, what) \
	CASE(trace_##id##_##n, name, NET, n, n, NET_BYTES, what) { replay(r, trace); }

TRACE(ag, 2, "trace.ring-ag", RING_ALLGATHER, "Allgather over a ring as NCCL 2.30.7 posted it")
TRACE(ag, 4, "trace.ring-ag", RING_ALLGATHER, "Allgather over a ring as NCCL 2.30.7 posted it")
TRACE(rs, 2, "trace.ring-rs", RING_REDUCE_SCATTER, "Reduce-Scatter over a ring as NCCL 2.30.7 posted it")
TRACE(rs, 4, "trace.ring-rs", RING_REDUCE_SCATTER, "Reduce-Scatter over a ring as NCCL 2.30.7 posted it")
TRACE(ar, 2, "trace.ring-ar", RING_ALLREDUCE, "Allreduce over a ring as NCCL 2.30.7 posted it")
TRACE(ar, 4, "trace.ring-ar", RING_ALLREDUCE, "Allreduce over a ring as NCCL 2.30.7 posted it")
TRACE(reg, 2, "trace.ring-registered", RING_REGISTERED, "user buffers over a ring as NCCL 2.30.7 posted them")
TRACE(reg, 4, "trace.ring-registered", RING_REGISTERED, "user buffers over a ring as NCCL 2.30.7 posted them")
TRACE(tree, 4, "trace.tree-ar", TREE_ALLREDUCE, "Allreduce over two trees as NCCL 2.30.7 posted it")
TRACE(sr, 4, "trace.sendrecv", SENDRECV, "Send and Recv between all pairs as NCCL 2.30.7 posted them")
TRACE(srr, 4, "trace.sendrecv-registered", SENDRECV_REGISTERED, "the same from user buffers")
