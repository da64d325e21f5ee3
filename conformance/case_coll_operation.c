/* One collective operation in windows, as NCCL 2.30.7 posts them (recorded):
 * in order, up to depth in flight, the oldest polled, the slot of a finished
 * window filled anew at once. Every byte is checked when its window is done,
 * before the slot is poisoned for the next. */
#include <stdlib.h>
#include <string.h>

#include "case_coll.h"

enum { POISON = 0xc5, GAP = 256, MAX_SPARE = 8 };	/* POISON: also the guard byte of buffers */

/* The part of rank's slot that lies in the window, relative to the window. */
struct cut {
	size_t at, bytes;
};

struct operation {
	struct group *g;
	struct plan p;
	size_t total, stride;		/* all ranks' bytes; of slots */
	size_t windows, posted, done, flushed;
	unsigned char *input, *want;	/* this rank's input; the result of all windows */
	struct buffer region;		/* slots: depth of sends, then depth of receives */
	struct buffer send, recv;	/* registered: the user's buffers */
	void *send_mhandle, *recv_mhandle;
	void *spare[MAX_SPARE];		/* registrations of the region that this operation does not use */
	int nspare;
	void *requests[MAX_DEPTH];
	bool flushing;			/* the oldest window's request is a flush */
};

static struct cut cut(const struct operation *o, int rank, size_t window)
{
	size_t first = (size_t)rank * o->p.bytes, end = first + o->p.bytes;
	size_t from = window * o->p.window, to = from + o->p.window;

	if (to > o->total)
		to = o->total;
	first = first > from ? first : from;
	end = end < to ? end : to;
	return (struct cut){ first - from, first < end ? end - first : 0 };
}

static size_t window_bytes(const struct operation *o, size_t window)
{
	size_t left = o->total - window * o->p.window;

	return left < o->p.window ? left : o->p.window;
}

static void fill(struct operation *o)
{
	struct rank *r = o->g->r;
	size_t count = o->p.func == ABI_ALLGATHER ? 0 : o->total / type_size(o->p.type);
	uint64_t key = o->g->key;

	o->want = malloc(o->total + 8);	/* pattern_fill writes no more than asked; 8 spare the case of 0 */
	o->input = malloc(o->total + 8);
	EXPECT(o->want && o->input, "expected %zu bytes of memory, got none", 2 * o->total);
	if (o->p.func == ABI_ALLGATHER) {
		for (int i = 0; i < r->ranks; i++)
			pattern_fill(o->want + (size_t)i * o->p.bytes, o->p.bytes, key + (uint64_t)i * 1299721);
		memcpy(o->input, o->want + (size_t)r->rank * o->p.bytes, o->p.bytes);
	} else {
		input_fill(o->input, count, o->p.type, o->p.op, r->rank, key);
		result_fill(o->want, count, o->p.type, o->p.op, r->ranks, key);
	}
}

/* The user's buffers of a registered operation; in place they are one. */
static void registered_buffers(struct operation *o)
{
	struct rank *r = o->g->r;
	size_t own = (size_t)r->rank * o->p.bytes;
	bool gather = o->p.func == ABI_ALLGATHER, scatter = o->p.func == ABI_REDUCE_SCATTER;

	o->send = buffer_new(gather ? o->p.bytes : o->total, 0);
	o->recv = buffer_new(scatter ? o->p.bytes : o->total, 0);
	memcpy(o->send.data, o->input, o->send.size);
	if (o->p.in_place) {		/* the larger of the two holds the other */
		struct buffer *small = gather ? &o->send : &o->recv, *large = gather ? &o->recv : &o->send;

		if (gather)
			memcpy(o->recv.data + own, o->input, o->p.bytes);
		buffer_free(small);
		*small = (struct buffer){ .data = large->data + (gather || scatter ? own : 0), .size = small->size };
	}
}

static void *registration(struct operation *o, void *data, size_t size)
{
	enum rule was = under(COLL_MEMORY);
	void *mhandle = NULL;

	/* NCCL registers whole pages, so never nothing */
	OK(coll_reg_mr(&o->g->r->coll, o->g->comm, data, size ? size : 1, ABI_PTR_HOST, &mhandle));
	EXPECT(mhandle, "regMr: expected a handle, got NULL");
	under(was);
	return mhandle;
}

struct operation *operation_new(struct group *g, const struct plan *p)
{
	struct operation *o = calloc(1, sizeof(*o));

	EXPECT(o, "expected memory, got none");
	o->g = g;
	o->p = *p;
	o->total = p->func == ABI_ALLREDUCE ? p->bytes : p->bytes * (size_t)g->r->ranks;
	o->windows = o->total ? (o->total + p->window - 1) / p->window : 1;
	o->stride = p->stride ? p->stride : (p->window + GAP + 63) / 64 * 64;
	fill(o);
	if (p->registered) {
		struct buffer *send = &o->send, *recv = &o->recv;

		registered_buffers(o);
		if (p->in_place)	/* one range, registered once for each use */
			send = recv = p->func == ABI_ALLGATHER ? recv : send;
		o->send_mhandle = registration(o, send->data, send->size);
		o->recv_mhandle = registration(o, recv->data, recv->size);
	} else {
		o->region = buffer_new(2 * (size_t)p->depth * o->stride, 0);
		while (o->nspare < p->registrations - 2)
			o->spare[o->nspare++] = registration(o, o->region.data, o->region.size);
		o->recv_mhandle = registration(o, o->region.data, o->region.size);
		o->send_mhandle = registration(o, o->region.data, o->region.size);
	}
	g->key = g->key * 6364136223846793005u + 1442695040888963407u;	/* the next one's data differ */
	return o;
}

static unsigned char *slot(const struct operation *o, size_t window, bool recv)
{
	size_t at = window % (size_t)o->p.depth + (recv ? (size_t)o->p.depth : 0);

	return o->region.data + at * o->stride;
}

static unsigned char *send_at(const struct operation *o, size_t window, struct cut own)
{
	size_t from = window * o->p.window;

	if (!o->p.registered)
		return slot(o, window, false);
	if (o->p.func == ABI_ALLGATHER)
		return own.bytes ? o->send.data + (from + own.at - (size_t)o->g->r->rank * o->p.bytes) : o->send.data;
	return o->send.data + from;
}

static unsigned char *recv_at(const struct operation *o, size_t window, struct cut own)
{
	size_t from = window * o->p.window;

	if (!o->p.registered)
		return slot(o, window, true);
	if (o->p.func == ABI_REDUCE_SCATTER)
		return own.bytes ? o->recv.data + (from + own.at - (size_t)o->g->r->rank * o->p.bytes) : o->recv.data;
	return o->recv.data + from;
}

/* What NCCL's kernel does before the proxy posts: the slot gets the input. */
static void stage(struct operation *o, size_t window, struct cut own)
{
	unsigned char *send = slot(o, window, false);
	size_t from = window * o->p.window;

	memset(send, POISON, o->stride);
	memset(slot(o, window, true), POISON, o->stride);
	if (o->p.func != ABI_ALLGATHER)
		memcpy(send, o->input + from, window_bytes(o, window));
	else if (own.bytes)
		memcpy(send, o->input + (from + own.at - (size_t)o->g->r->rank * o->p.bytes), own.bytes);
}

static int call(struct operation *o, size_t window, void **request)
{
	struct coll *c = &o->g->r->coll;
	struct cut own = cut(o, o->g->r->rank, window);
	size_t from = window * o->p.window, bytes = window_bytes(o, window);
	unsigned char *send = send_at(o, window, own), *recv = recv_at(o, window, own);
	struct abi_part part = { o->recv_mhandle, recv, bytes };

	*request = NULL;
	switch (o->p.func) {
	case ABI_ALLGATHER:
		return coll_iallgather(c, o->g->comm, send, 1, &part, o->p.bytes, from, bytes, o->send_mhandle, request);
	case ABI_REDUCE_SCATTER:
		part = (struct abi_part){ o->send_mhandle, send, bytes };
		return coll_ireduce_scatter(c, o->g->comm, 1, &part, recv, o->p.bytes, from, bytes, o->p.type, o->p.op,
			o->recv_mhandle, request);
	default:
		return coll_iallreduce(c, o->g->comm, send, recv, bytes / type_size(o->p.type), o->p.type, o->p.op,
			o->send_mhandle, o->recv_mhandle, request);
	}
}

/* False: the plugin gave a NULL request and wants the same call again. */
static bool post(struct operation *o, size_t window)
{
	size_t depth = (size_t)o->p.depth;
	void *request;

	if (!o->p.registered)
		stage(o, window, cut(o, o->g->r->rank, window));
	OK(call(o, window, &request));
	if (!request)
		return false;
	for (size_t w = o->done; w < window; w++)
		EXPECT_RULE(COLL_REQUESTS, o->requests[w % depth] != request || (w == o->done && o->flushing),
			"window %zu: expected a request of its own, got that of window %zu, in flight", window, w);
	o->requests[window % depth] = request;
	return true;
}

/* The rule that a wrong byte of a rank's part breaks, by the rank and the byte's place. */
static enum rule rule_of(const struct operation *o, int rank, size_t window, size_t at)
{
	if (rank == o->g->r->rank)
		return o->p.in_place ? COLL_IN_PLACE : window ? COLL_WINDOW : COLL_OWN_PART;
	return at ? COLL_STRADDLING : window ? COLL_WINDOW : COLL_BYTES;
}

static void check_bytes(const struct operation *o, enum rule rule, size_t window, const unsigned char *got,
	const unsigned char *want, struct cut part)
{
	static const char *const funcs[] = { "", "", "allgather", "reduce-scatter", "allreduce" };
	size_t at = part.at + first_difference(got + part.at, want + part.at, part.bytes);

	EXPECT_RULE(o->p.rule ? o->p.rule : rule, at == part.at + part.bytes,
		"%s of %zu bytes a rank (%s%s%s%s), window %zu of %zu at %zu, %zu bytes: expected byte %zu to be 0x%02x, got 0x%02x",
		funcs[o->p.func], o->p.bytes, o->p.registered ? "registered" : "staged",
		o->p.in_place ? ", in place" : "", o->p.func == ABI_ALLGATHER ? "" : ", ",
		o->p.func == ABI_ALLGATHER ? "" : type_name(o->p.type), window, o->windows, window * o->p.window,
		window_bytes(o, window), at, want[at], got[at]);
}

/* Nothing behind the first used bytes of a slot may have changed. */
static void check_slot(const struct operation *o, const char *which, size_t window, const unsigned char *data,
	size_t used)
{
	size_t at = used;

	while (at < o->stride && data[at] == POISON)
		at++;
	EXPECT_RULE(used ? COLL_GUARDS : COLL_EMPTY_SLOT, at == o->stride,
		"window %zu: expected the %s slot untouched behind %zu bytes, got byte %zu written", window, which, used, at);
}

/* The bytes that the window brought. */
static void check_window(struct operation *o, size_t window)
{
	size_t bytes = window_bytes(o, window);
	struct cut own = cut(o, o->g->r->rank, window), whole = { 0, bytes };
	const unsigned char *recv = recv_at(o, window, own), *want = o->want + window * o->p.window;
	bool gather = o->p.func == ABI_ALLGATHER, scatter = o->p.func == ABI_REDUCE_SCATTER;

	if (gather) {
		for (int i = 0; i < o->g->r->ranks; i++) {
			struct cut part = cut(o, i, window);

			check_bytes(o, rule_of(o, i, window, part.at), window, recv, want, part);
		}
	} else {
		enum rule rule = o->p.in_place ? COLL_IN_PLACE : COLL_SUMS;

		if (scatter) {
			want += own.at;
			whole.bytes = own.bytes;
		}
		check_bytes(o, rule, window, recv, want, whole);
	}
	if (o->p.registered)
		return;			/* what lies beside is other windows' */
	check_slot(o, "receive", window, recv, scatter ? own.bytes : bytes);
	check_slot(o, "send", window, slot(o, window, false), gather ? own.bytes : bytes);
}

/* The oldest window: true if something moved. */
static bool poll_oldest(struct operation *o)
{
	struct coll *c = &o->g->r->coll;
	size_t window = o->done, depth = (size_t)o->p.depth;
	struct cut own = cut(o, o->g->r->rank, window);
	size_t received = o->p.func == ABI_REDUCE_SCATTER ? own.bytes : window_bytes(o, window);
	int done = 0, size = -1;

	OK(coll_test(c, o->requests[window % depth], &done, &size));
	if (!done)
		return false;
	if (o->p.flush && received && !o->flushing) {
		enum rule was = under(COLL_FLUSH);
		void *request = NULL;

		OK(coll_iflush(c, o->g->comm, recv_at(o, window, own), (int)received, o->recv_mhandle, &request));
		under(was);
		if (request) {
			o->requests[window % depth] = request;
			o->flushing = true;
			under(COLL_FLUSH);
			return true;
		}
	}
	if (o->flushing) {
		o->flushing = false;
		under(COLL_COMPLETION);
	}
	check_window(o, window);
	if (!o->p.registered) {		/* the GPU fills the slot again */
		memset(slot(o, window, false), (int)~POISON & 0xff, o->stride);
		memset(slot(o, window, true), (int)~POISON & 0xff, o->stride);
	}
	o->done++;
	return true;
}

bool operation_turn(struct operation *o, bool *busy)
{
	*busy = false;
	under(o->flushing ? COLL_FLUSH : o->p.rule ? o->p.rule : COLL_COMPLETION);
	while (o->posted < o->windows && o->posted - o->done < (size_t)o->p.depth && post(o, o->posted)) {
		o->posted++;
		*busy = true;
	}
	if (o->done < o->posted && poll_oldest(o))
		*busy = true;
	return o->done < o->windows;
}

void operation_patience(struct operation *o, int polls)
{
	int done = 0;

	for (int i = 0; i < polls; i++) {
		if (o->posted < o->windows && post(o, o->posted))
			o->posted++;
		if (o->posted > 0)
			OK(coll_test(&o->g->r->coll, o->requests[0], &done, NULL));
		EXPECT(!done, "test: expected not done while other ranks have not posted, got done at poll %d", i);
		breathe(o->g->r, false);
	}
}

int operation_until_end(struct group *g, const struct plan *p, double until, bool *finished)
{
	struct operation *o = operation_new(g, p);
	void *request = NULL;
	int result = ABI_SUCCESS, done = 0;

	stage(o, 0, cut(o, g->r->rank, 0));
	while (result == ABI_SUCCESS && !done && now() < until) {
		result = request ? coll_test(&g->r->coll, request, &done, NULL) : call(o, 0, &request);
		breathe(g->r, false);
	}
	*finished = done;
	return result;		/* its memory stays registered until the comm is closed */
}

int operation_until_error(struct group *g, const struct plan *p, double until)
{
	bool finished;
	int result = operation_until_end(g, p, until, &finished);

	EXPECT_RULE(COLL_EARLY, !finished, "test: expected an error, got done though a rank died before it posted");
	return result;
}

int operation_in_flight(const struct operation *o)
{
	return (int)(o->posted - o->done);
}

/* What only shows in the end: the user's buffers as a whole. */
void operation_check(struct operation *o)
{
	size_t at, own = (size_t)o->g->r->rank * o->p.bytes;

	if (!o->p.registered) {
		guards_check("staging region", COLL_GUARDS, &o->region, o->region.size);
		return;
	}
	if (o->p.func == ABI_REDUCE_SCATTER)
		at = first_difference(o->recv.data, o->want + own, o->recv.size);
	else
		at = first_difference(o->recv.data, o->want, o->recv.size);
	EXPECT_RULE(o->p.func == ABI_REDUCE_SCATTER ? COLL_EMPTY_SLOT : COLL_GUARDS, at == o->recv.size,
		"receive buffer after all windows: expected the result, got byte %zu of %zu changed after its window was done",
		at, o->recv.size);
	if (o->recv.base)
		guards_check("receive buffer", COLL_GUARDS, &o->recv, o->recv.size);
	if (o->send.base)
		guards_check("send buffer", COLL_GUARDS, &o->send, o->send.size);
	if (o->p.in_place)
		return;
	at = first_difference(o->send.data, o->input, o->send.size);
	EXPECT_RULE(COLL_EMPTY_SLOT, at == o->send.size,
		"send buffer: expected it unchanged, got byte %zu of %zu written", at, o->send.size);
}

void operation_abandon(struct operation *o)
{
	if (o->region.base)
		buffer_free(&o->region);
	if (o->send.base)
		buffer_free(&o->send);
	if (o->recv.base)
		buffer_free(&o->recv);
	free(o->input);
	free(o->want);
	free(o);
}

void operation_free(struct operation *o)
{
	enum rule was = under(COLL_MEMORY);

	OK(coll_dereg_mr(&o->g->r->coll, o->g->comm, o->recv_mhandle));
	OK(coll_dereg_mr(&o->g->r->coll, o->g->comm, o->send_mhandle));
	while (o->nspare > 0)
		OK(coll_dereg_mr(&o->g->r->coll, o->g->comm, o->spare[--o->nspare]));
	under(was);
	operation_abandon(o);
}
