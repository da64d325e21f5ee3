/* Messages of one connection. */
#include <string.h>

#include "net_link.h"

static const size_t sizes[] = {
	0, 1, 2, 3, 7, 8, 63, 64, 65, 4095, 4096, 4097, 65535, 65536, 65537,
	(1 << 20) - 1, 1 << 20, (1 << 20) + 1, 4 << 20, (16 << 20) + 3,
};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

/* Fills m as message i of a link from rank 0 to rank 1. extra: room of the
 * receive beyond the bytes sent. */
static struct buffer prepare(struct rank *r, struct message *m, struct link *l, int i, size_t size, size_t extra)
{
	bool receive = r->rank == 1;
	struct buffer b = buffer_new(size + (receive ? extra : 0), (size_t)i % 8);

	*m = (struct message){ .receive = receive, .data = b.data, .size = b.size, .tag = 0 };
	m->comm = receive ? l->recv : l->send;
	m->mhandle = memory(r, m->comm, b.data, b.size ? b.size : 1);
	if (!receive)
		pattern_fill(b.data, size, key_of(r, (uint64_t)i, 0, 0));
	return b;
}

static void check(struct rank *r, const struct message *m, const struct buffer *b, int i, size_t size)
{
	if (m->receive) {
		pattern_check("message", b->data, size, key_of(r, (uint64_t)i, 0, 0));
		guards_check("message", NET_GUARDS, b, size);
		if (!m->quiet)
			EXPECT_RULE(NET_SIZE, (size_t)m->got == size, "expected size %zu from test, got %d", size, m->got);
	}
}

static void dereg(struct rank *r, const struct message *m, int count)
{
	for (int i = 0; i < count; i++)
		OK(net_dereg_mr(&r->net, m[i].comm, m[i].mhandle));
}

/* All sizes, with extra room in the receives. */
static void all_sizes(struct rank *r, size_t extra, bool quiet)
{
	struct message m[SIZES];
	struct buffer b[SIZES];
	struct link l;

	net_begin(r);
	links_open(r, &l, 1, 0, 1);
	for (int i = 0; i < SIZES; i++) {
		b[i] = prepare(r, &m[i], &l, i, sizes[i], extra);
		m[i].quiet = quiet && i % 2;
	}
	messages_wait(r, m, SIZES, 4);
	for (int i = 0; i < SIZES; i++)
		check(r, &m[i], &b[i], i, sizes[i]);
	dereg(r, m, SIZES);
	barrier(r);
	links_close(r, &l, 1);
	OK(net_finalize(&r->net, r->net.ctx));
}

CASE(net_bytes, "net.bytes", NET, 2, 2, NET_BYTES, "0 bytes to 16 MiB and 3, odd addresses, four in flight")
{
	all_sizes(r, 0, false);
}

CASE(net_sizes_unasked, "net.sizes-unasked", NET, 2, 2, NET_BYTES, "test with and without a place for sizes")
{
	all_sizes(r, 0, true);
}

CASE(net_size, "net.size", NET, 2, 2, NET_SIZE, "receives of 1 MiB more than is sent, 0 bytes among them")
{
	all_sizes(r, 1 << 20, false);
}

CASE(net_zero, "net.zero", NET, 2, 2, NET_SIZE, "as Ring sends small data: a slice with bytes, an empty slice")
{
	enum { COUNT = 64 };
	struct message m[COUNT];
	struct buffer b[COUNT];
	struct link l;

	net_begin(r);
	links_open(r, &l, 1, 0, 1);
	for (int i = 0; i < COUNT; i++)
		b[i] = prepare(r, &m[i], &l, i, i % 2 ? 0 : 512, 65536);
	messages_wait(r, m, COUNT, 4);
	for (int i = 0; i < COUNT; i++)
		check(r, &m[i], &b[i], i, i % 2 ? 0 : 512);
}

CASE(net_order, "net.order", NET, 2, 2, NET_ORDER,
	"messages of one size arrive in the order of their posts, receives posted first, sends first, and both at once")
{
	enum { ROUNDS = 12, COUNT = 16 };
	struct link l;

	net_begin(r);
	links_open(r, &l, 1, 0, 1);
	for (int round = 0; round < ROUNDS; round++) {
		size_t size = round < ROUNDS / 2 ? 512 : 70000;
		int first = round % 3;		/* rank 0, rank 1, neither */
		struct message m[COUNT];
		struct buffer b[COUNT];
		int posted = 0;

		for (int i = 0; i < COUNT; i++)
			b[i] = prepare(r, &m[i], &l, round * COUNT + i, size, 0);
		if (r->rank == first) {
			while (posted < 8 && message_post(r, &m[posted]))
				posted++;
			flag_raise(r, round, 1);
		} else if (first < 2) {
			flag_wait(r, round, 1);
		}
		messages_wait(r, m, COUNT, 8);
		for (int i = 0; i < COUNT; i++)
			check(r, &m[i], &b[i], round * COUNT + i, size);
		dereg(r, m, COUNT);
	}
}

CASE(net_guards, "net.guards", NET, 2, 2, NET_GUARDS,
	"messages into every other slot of one registered region, the slots back to back")
{
	enum { SLOTS = 64, SLOT = 1000 };
	struct message m[SLOTS / 2];
	struct buffer b = buffer_new((size_t)SLOTS * SLOT, 0);
	void *mhandle;
	struct link l;

	net_begin(r);
	links_open(r, &l, 1, 0, 1);
	mhandle = memory(r, l.send ? l.send : l.recv, b.data, b.size);
	for (int i = 0; i < SLOTS / 2; i++) {
		size_t size = i % 4 == 0 ? SLOT : (size_t)i * 37 % SLOT;

		m[i] = (struct message){ .receive = r->rank == 1, .data = b.data + 2 * (size_t)i * SLOT, .mhandle = mhandle };
		m[i].comm = m[i].receive ? l.recv : l.send;
		m[i].size = m[i].receive ? SLOT : size;
		if (!m[i].receive)
			pattern_fill(m[i].data, size, key_of(r, (uint64_t)i, 0, 0));
	}
	messages_wait(r, m, SLOTS / 2, 8);
	for (int i = 0; i < SLOTS / 2 && r->rank == 1; i++) {
		size_t size = i % 4 == 0 ? SLOT : (size_t)i * 37 % SLOT;

		pattern_check("message", m[i].data, size, key_of(r, (uint64_t)i, 0, 0));
		untouched_check("slot", NET_GUARDS, &b, 2 * (size_t)i * SLOT + size, 2 * SLOT - size);
	}
	guards_check("region", NET_GUARDS, &b, b.size);
}

enum { FIRST_DONE = 0 };		/* flag */

/* COUNT requests of one side are posted, as far as the plugin takes them, before
 * the other side posts any. */
static void one_side_first(struct rank *r, int first, size_t size)
{
	enum { COUNT = ABI_REQUESTS };
	struct message m[COUNT];
	struct buffer b[COUNT];
	struct link l;
	int posted = 0;

	net_begin(r);
	links_open(r, &l, 1, 0, 1);
	for (int i = 0; i < COUNT; i++)
		b[i] = prepare(r, &m[i], &l, i, size + (size_t)i, 0);
	if (r->rank == first) {
		while (posted < COUNT && message_post(r, &m[posted]))
			posted++;
		for (int i = 0; i < posted; i++)
			if (message_test(r, &m[i]))
				EXPECT_RULE(NET_EARLY_RECV, !m[i].receive,
					"expected receive %d to wait for its send, got done", i);
		flag_raise(r, FIRST_DONE, (uint64_t)posted + 1);
	} else {
		flag_wait(r, FIRST_DONE, 1);
	}
	messages_wait(r, m, COUNT, COUNT);
	for (int i = 0; i < COUNT; i++)
		check(r, &m[i], &b[i], i, size + (size_t)i);
	note("%d of %d requests taken at once", (int)flag_read(r, FIRST_DONE) - 1, COUNT);
}

CASE(net_sends_first, "net.sends-first", NET, 2, 2, NET_REQUESTS, "32 sends before the first receive")
{
	one_side_first(r, 0, 3000);
}

CASE(net_large_sends_first, "net.large-sends-first", NET, 2, 2, NET_REQUESTS,
	"32 sends of 1 MiB before the first receive")
{
	one_side_first(r, 0, 1 << 20);
}

CASE(net_receives_first, "net.receives-first", NET, 2, 2, NET_REQUESTS, "32 receives before the first send")
{
	one_side_first(r, 1, 3000);
}

CASE(net_request_out, "net.request-overwritten", NET, 2, 2, NET_REQUEST_OUT, "*request is 0x1 when irecv is called")
{
	enum { COUNT = 100 };
	struct message m[COUNT];
	struct buffer b[COUNT];
	struct link l;

	net_begin(r);
	if (r->net.calls.resets_request)
		not_offered("NCCL resets *request for this version");
	links_open(r, &l, 1, 0, 1);
	for (int i = 0; i < COUNT; i++) {
		b[i] = prepare(r, &m[i], &l, i, 1000, 0);
		m[i].hint = m[i].receive && i % 3 ? ABI_OPTIONAL_COMPLETION : NULL;
	}
	messages_wait(r, m, COUNT, ABI_REQUESTS);
	for (int i = 0; i < COUNT; i++)
		check(r, &m[i], &b[i], i, 1000);
}

static const size_t early_sizes[] = { 1, 4096, 65536, 1 << 20, 4 << 20 };
enum { EARLY = sizeof(early_sizes) / sizeof(early_sizes[0]), TURN = 1 };

CASE(net_early_receive, "net.early-done-receive", NET, 2, 2, NET_EARLY_RECV,
	"a receive that is polled for long is done when, and only when, its bytes are there")
{
	struct link l;

	net_begin(r);
	links_open(r, &l, 1, 0, 1);
	for (int i = 0; i < EARLY; i++) {
		struct message m;
		struct buffer b = prepare(r, &m, &l, i, early_sizes[i], 0);

		polling(NET_COMPLETION);
		while (m.receive && !message_post(r, &m))
			breathe(r, false);
		for (int polls = 0; m.receive && polls < 3000; polls++)
			EXPECT(!message_test(r, &m), "expected no completion before the send, got one after %d tests", polls);
		if (m.receive)
			flag_raise(r, TURN, (uint64_t)i + 1);
		else
			flag_wait(r, TURN, (uint64_t)i + 1);
		messages_wait(r, &m, 1, 1);
		check(r, &m, &b, i, early_sizes[i]);
	}
}

CASE(net_early_send, "net.early-done-send", NET, 2, 2, NET_EARLY_SEND,
	"a send whose buffer is filled anew as soon as it is done, before the receive is posted where possible")
{
	struct link l;

	net_begin(r);
	links_open(r, &l, 1, 0, 1);
	for (int i = 0; i < EARLY; i++) {
		struct message m;
		struct buffer b = prepare(r, &m, &l, i, early_sizes[i], 0);

		polling(NET_COMPLETION);
		if (!m.receive) {
			for (int polls = 0; polls < 3000 && !m.done; polls++)
				breathe(r, messages_turn(r, &m, 1, 1));
			if (m.done)
				memset(b.data, 0xee, b.size);
			flag_raise(r, TURN, (uint64_t)i + 1);
		} else {
			flag_wait(r, TURN, (uint64_t)i + 1);
		}
		messages_wait(r, &m, 1, 1);
		if (!m.receive)
			memset(b.data, 0xee, b.size);
		check(r, &m, &b, i, early_sizes[i]);
	}
}

CASE(net_completion, "net.completion", NET, 2, 2, NET_COMPLETION,
	"requests of both sides are done, tested newest first, with pauses of either side")
{
	enum { COUNT = 24, ROUNDS = 4 };
	struct link l;

	net_begin(r);
	links_open(r, &l, 1, 0, 1);
	for (int round = 0; round < ROUNDS; round++) {
		struct message m[COUNT];
		struct buffer b[COUNT];
		int left = 0;

		if (round % 2 == r->rank)
			flag_wait(r, round, 1);
		else
			flag_raise(r, round, 1);
		polling(NET_COMPLETION);
		for (int i = 0; i < COUNT; i++) {
			b[i] = prepare(r, &m[i], &l, i, 2048, 0);
			while (!message_post(r, &m[i]))
				breathe(r, messages_turn(r, m, i, COUNT));
		}
		for (int i = 0; i < COUNT; i++)
			left += !m[i].done;
		while (left > 0)
			for (int i = COUNT - 1; i >= 0; i--)
				if (!m[i].done) {
					bool done = message_test(r, &m[i]);

					left -= done;
					breathe(r, done);
				}
		for (int i = 0; i < COUNT; i++)
			check(r, &m[i], &b[i], i, 2048);
		dereg(r, m, COUNT);
	}
}

CASE(net_group, "net.group", NET, 2, 2, NET_GROUP, "one receive of two messages, told apart by tag")
{
	enum { BYTES = 3000 };
	struct abi_props props = net_begin(r);
	struct link l;

	if (props.max_recvs < 2)
		not_offered("maxRecvs is %d", props.max_recvs);
	links_open(r, &l, 1, 0, 1);
	polling(NET_COMPLETION);
	if (r->rank == 0) {
		/* Posted in the other order than the tags of the receive. */
		for (int tag = 11; tag >= 10; tag--) {
			struct buffer b = buffer_new(BYTES, 0);
			struct message m = { .comm = l.send, .data = b.data, .size = (size_t)BYTES - (size_t)tag, .tag = tag };

			m.mhandle = memory(r, m.comm, b.data, BYTES);
			pattern_fill(b.data, BYTES, key_of(r, (uint64_t)tag, 0, 0));
			while (!message_post(r, &m))
				breathe(r, false);
			if (tag == 10)
				messages_wait(r, &m, 1, 1);
		}
	} else {
		struct buffer b[2] = { buffer_new(BYTES, 0), buffer_new(BYTES, 0) };
		void *data[2] = { b[0].data, b[1].data }, *mhandles[2], *phandles[2] = { NULL }, *request = NULL;
		size_t room[2] = { BYTES, BYTES };
		int tags[2] = { 10, 11 }, got[2] = { UNSAID, UNSAID }, done = 0;

		for (int i = 0; i < 2; i++)
			mhandles[i] = memory(r, l.recv, data[i], BYTES);
		do {
			OK(net_irecv(&r->net, l.recv, 2, data, room, tags, mhandles, phandles, &request));
			breathe(r, request != NULL);
		} while (!request);
		while (!done) {
			OK(net_test(&r->net, request, &done, got));
			breathe(r, done);
		}
		for (int i = 0; i < 2; i++) {
			EXPECT(got[i] == BYTES - tags[i], "expected size %d for tag %d, got %d", BYTES - tags[i], tags[i], got[i]);
			pattern_check("grouped message", data[i], (size_t)got[i], key_of(r, (uint64_t)tags[i], 0, 0));
			guards_check("grouped message", NET_GUARDS, &b[i], (size_t)got[i]);
		}
	}
}
