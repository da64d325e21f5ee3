/* Many connections, threads, and registrations beside them. */
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "net_link.h"

enum { LINKS = 64, EACH = 6 };

/* Bytes of message i of link k: all sizes differ from their neighbours'. */
static size_t size_of(int k, int i) { return (size_t)(k * 131 + i * 4099) % 30000; }

static struct buffer prepare(struct rank *r, struct message *m, struct link *l, uint64_t key, size_t size)
{
	struct buffer b = buffer_new(size, 0);

	*m = (struct message){ .receive = l->recv != NULL, .data = b.data, .size = size };
	m->comm = m->receive ? l->recv : l->send;
	m->mhandle = memory(r, m->comm, b.data, size ? size : 1);
	if (!m->receive)
		pattern_fill(b.data, size, key);
	return b;
}

static void check(const struct message *m, const struct buffer *b, uint64_t key, size_t size)
{
	if (!m->receive)
		return;
	EXPECT_RULE(NET_SIZE, (size_t)m->got == size, "expected size %zu from test, got %d", size, m->got);
	pattern_check("message", b->data, size, key);
	guards_check("message", NET_GUARDS, b, size);
}

/* Links first to first + count - 1, EACH messages on each; the receiver posts on
 * them in the other order than the sender. */
static void drive(struct rank *r, struct link *links, int first, int count)
{
	static struct message m[LINKS * EACH];
	static struct buffer b[LINKS * EACH];
	bool receive = links[first].recv != NULL;
	struct message *mine = &m[first * EACH];
	struct buffer *theirs = &b[first * EACH];

	for (int n = 0; n < count; n++) {
		int k = first + (receive ? count - 1 - n : n);

		for (int i = 0; i < EACH; i++)
			theirs[n * EACH + i] = prepare(r, &mine[n * EACH + i], &links[k],
				key_of(r, (uint64_t)k, (uint64_t)i, 0), size_of(k, i));
	}
	messages_wait(r, mine, count * EACH, EACH);
	for (int n = 0; n < count; n++) {
		int k = first + (receive ? count - 1 - n : n);

		for (int i = 0; i < EACH; i++)
			check(&mine[n * EACH + i], &theirs[n * EACH + i],
				key_of(r, (uint64_t)k, (uint64_t)i, 0), size_of(k, i));
	}
}

CASE(net_many, "net.many-comms", NET, 2, 2, NET_SEPARATE, "64 connections at once on one thread")
{
	static struct link links[LINKS];

	net_begin(r);
	links_open(r, links, LINKS, 0, 1);
	drive(r, links, 0, LINKS);
	barrier(r);
	links_close(r, links, LINKS);
	OK(net_finalize(&r->net, r->net.ctx));
}

enum { WORKERS = 4, SHARE = LINKS / WORKERS };
static struct link shared_links[LINKS];

static void work(struct rank *r, void *arg)
{
	drive(r, shared_links, *(const int *)arg * SHARE, SHARE);
}

CASE(net_threads, "net.threads", NET, 2, 2, NET_THREADS, "64 connections on 4 threads, half of them in each direction")
{
	static int index[WORKERS];

	net_begin(r);
	links_open(r, shared_links, LINKS / 2, 0, 1);
	links_open(r, shared_links + LINKS / 2, LINKS / 2, 1, 0);
	for (int i = 0; i < WORKERS; i++) {
		index[i] = i;
		thread_start(r, i + 1, work, &index[i]);
	}
	thread_join_all(r);
	barrier(r);
	links_close(r, shared_links, LINKS);
}

CASE(net_duplex, "net.duplex", NET, 2, 2, NET_BYTES, "1 MiB messages both ways at once, 8 in flight each way")
{
	enum { COUNT = 48, BYTES = 1 << 20 };
	struct link links[2];
	struct message m[COUNT];
	struct buffer b[COUNT];

	net_begin(r);
	links_open(r, &links[0], 1, 0, 1);
	links_open(r, &links[1], 1, 1, 0);
	for (int i = 0; i < COUNT; i++)
		b[i] = prepare(r, &m[i], &links[i % 2], key_of(r, (uint64_t)i, 0, 0), BYTES);
	messages_wait(r, m, COUNT, 8);
	for (int i = 0; i < COUNT; i++)
		check(&m[i], &b[i], key_of(r, (uint64_t)i, 0, 0), BYTES);
}

/* Memory */

CASE(net_memory_handle, "net.memory-handle", NET, 2, 2, NET_MHANDLE,
	"registrations of 1 byte to 64 MiB, odd addresses, again and nested")
{
	enum { BYTES = 64 << 20, COUNT = 8 };
	struct buffer b = buffer_new(BYTES, 3);
	struct { size_t at, size; } parts[COUNT] = {
		{ 0, 1 }, { 0, BYTES }, { 0, BYTES }, { 1, 4096 }, { 4095, 2 }, { 100, 1 << 20 }, { BYTES - 1, 1 }, { 5000, 0x10001 },
	};
	void *mhandles[COUNT];
	struct link l;
	void *comm;

	net_begin(r);
	links_open(r, &l, 1, 0, 1);
	comm = l.send ? l.send : l.recv;
	for (int i = 0; i < COUNT; i++)
		mhandles[i] = memory(r, comm, b.data + parts[i].at, parts[i].size);
	for (int i = 0; i < COUNT; i++)
		OK(net_dereg_mr(&r->net, comm, mhandles[i * 3 % COUNT]));
	barrier(r);
	links_close(r, &l, 1);
}

/* A message of part [at, at + size) of b under a registration of its own. */
static void part_message(struct rank *r, struct link *l, struct buffer *b, void *mhandle, size_t at, size_t size)
{
	struct message m = { .receive = l->recv != NULL, .data = b->data + at, .size = size, .mhandle = mhandle };

	m.comm = m.receive ? l->recv : l->send;
	if (!m.receive)
		pattern_fill(m.data, size, key_of(r, at, size, 0));
	messages_wait(r, &m, 1, 1);
	pattern_check("message", m.data, size, key_of(r, at, size, 0));
}

CASE(net_memory_nested, "net.memory-nested", NET, 2, 2, NET_MEMORY,
	"nested and overlapping registrations stay good when others of the same memory go")
{
	enum { BYTES = 1 << 20 };
	struct buffer b = buffer_new(BYTES, 0);
	struct link l;
	void *comm, *whole, *same, *left, *right;

	net_begin(r);
	links_open(r, &l, 1, 0, 1);
	comm = l.send ? l.send : l.recv;
	whole = memory(r, comm, b.data, BYTES);
	same = memory(r, comm, b.data, BYTES);
	left = memory(r, comm, b.data, BYTES / 2 + 100);
	right = memory(r, comm, b.data + BYTES / 2 - 100, BYTES / 2 + 100);
	part_message(r, &l, &b, whole, 0, BYTES);
	OK(net_dereg_mr(&r->net, comm, whole));
	part_message(r, &l, &b, same, 1, BYTES - 1);
	part_message(r, &l, &b, left, 10, BYTES / 2);
	OK(net_dereg_mr(&r->net, comm, left));
	part_message(r, &l, &b, right, BYTES / 2 - 100, BYTES / 2);
	OK(net_dereg_mr(&r->net, comm, right));
	part_message(r, &l, &b, same, 0, BYTES);
	OK(net_dereg_mr(&r->net, comm, same));
	whole = memory(r, comm, b.data, BYTES);
	part_message(r, &l, &b, whole, 0, BYTES);
	OK(net_dereg_mr(&r->net, comm, whole));
}

enum { REGISTRATIONS = 400 };

struct registrar {
	void *comm;
	struct buffer *b;		/* of the transfers, so that registrations overlap them */
	_Atomic int begun;		/* threads */
	_Atomic bool ended;		/* the transfers */
};

/* Another thread, as NCCL's service thread registers user buffers. */
static void register_all_the_time(struct rank *r, void *arg)
{
	struct registrar *g = arg;

	atomic_fetch_add(&g->begun, 1);
	for (int i = 0; i < REGISTRATIONS || !atomic_load(&g->ended); i++) {
		size_t at = (size_t)i * 977 % (g->b->size / 2);
		void *one = memory(r, g->comm, g->b->data + at, 1 + (size_t)i * 101 % (g->b->size / 2));
		void *two = memory(r, g->comm, g->b->data, g->b->size);

		OK(net_dereg_mr(&r->net, g->comm, i % 2 ? one : two));
		OK(net_dereg_mr(&r->net, g->comm, i % 2 ? two : one));
	}
}

CASE(net_memory_threads, "net.memory-threads", NET, 2, 2, NET_MEMORY,
	"two threads register and deregister the memory of transfers that a third one drives")
{
	enum { COUNT = 400, BYTES = 20000 };
	static struct message m[COUNT];
	struct buffer b = buffer_new((size_t)COUNT * BYTES, 0);
	struct registrar g;
	struct link l;
	void *mhandle;

	net_begin(r);
	links_open(r, &l, 1, 0, 1);
	g = (struct registrar){ .comm = l.send ? l.send : l.recv, .b = &b };
	mhandle = memory(r, g.comm, b.data, b.size);
	for (int i = 0; i < COUNT; i++) {
		m[i] = (struct message){ .comm = g.comm, .receive = l.recv != NULL, .data = b.data + (size_t)i * BYTES,
			.size = BYTES, .mhandle = mhandle };
		if (!m[i].receive)
			pattern_fill(m[i].data, BYTES, key_of(r, (uint64_t)i, 0, 0));
	}
	thread_start(r, 1, register_all_the_time, &g);
	thread_start(r, 2, register_all_the_time, &g);
	while (atomic_load(&g.begun) < 2)	/* a busy machine may run them late */
		breathe(r, false);
	messages_wait(r, m, COUNT, 8);
	atomic_store(&g.ended, true);
	thread_join_all(r);
	for (int i = 0; i < COUNT; i++)
		pattern_check("message", m[i].data, BYTES, key_of(r, (uint64_t)i, 0, 0));
	OK(net_dereg_mr(&r->net, g.comm, mhandle));
	barrier(r);
	links_close(r, &l, 1);
}
