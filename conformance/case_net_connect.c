/* Properties, handles, and connections in every order that NCCL makes them. */
#include <string.h>

#include "net_link.h"

static bool unset(const void *field, size_t bytes)
{
	const unsigned char *p = field;

	for (size_t i = 0; i < bytes; i++)
		if (p[i] != PROPS_POISON)
			return false;
	return true;
}

#define SET(field) \
	EXPECT(!unset(&p->field, sizeof(p->field)), "expected " #field " to be set, got the bytes that were there")

static void properties_check(const struct abi_props *p, int max_vdevice)
{
	SET(name);
	SET(pci_path);
	SET(guid);
	SET(ptr_support);
	SET(reg_is_global);
	SET(force_flush);
	SET(speed);
	SET(port);
	SET(latency);
	SET(max_comms);
	SET(max_recvs);
	SET(device_type);
	SET(device_version);
	SET(vdevice.ndevs);
	SET(max_p2p_bytes);
	SET(max_coll_bytes);
	SET(max_multi_request_size);
	SET(rail_id);
	SET(plane_id);
	EXPECT(p->name && p->name[0], "expected a name, got %s", p->name ? "an empty one" : "NULL");
	EXPECT(p->speed > 0, "expected a speed above 0 Mbit/s, got %d", p->speed);
	EXPECT(p->latency >= 0, "expected a latency of 0 us or more, got %g", (double)p->latency);
	EXPECT(p->ptr_support & ABI_PTR_HOST, "expected ptrSupport with NCCL_PTR_HOST (1), got %d", p->ptr_support);
	EXPECT(p->max_comms > 0, "expected maxComms above 0, got %d", p->max_comms);
	EXPECT(p->max_recvs >= 1 && p->max_recvs <= 8, "expected maxRecvs of 1 to 8, got %d", p->max_recvs);
	EXPECT(p->max_p2p_bytes > 0, "expected maxP2pBytes above 0, got 0");
	EXPECT(p->max_coll_bytes > 0, "expected maxCollBytes above 0, got 0");
	EXPECT(p->vdevice.ndevs >= 1 && p->vdevice.ndevs <= max_vdevice,
		"expected vProps.ndevs of 1 to %d, got %d", max_vdevice, p->vdevice.ndevs);
}

CASE(net_properties, "net.properties", NET, 1, 1, NET_PROPERTIES, "each device describes itself, twice the same")
{
	struct abi_props first, again;
	int ndev = -1;

	net_begin(r);
	OK(net_devices(&r->net, &ndev));
	EXPECT(r->net.name && r->net.name[0], "expected a name of the plugin, got none");
	for (int dev = 0; dev < ndev; dev++) {
		OK(net_properties(&r->net, dev, &first));
		properties_check(&first, r->net.calls.max_vdevice);
		OK(net_properties(&r->net, dev, &again));
		EXPECT(strcmp(first.name, again.name) == 0 && first.guid == again.guid && first.speed == again.speed,
			"expected device %d to be the same when asked again, got another name, guid or speed", dev);
	}
	note("%d devices, the first is \"%s\", %d Mbit/s", ndev, r->net.name, first.speed);
}

CASE(net_arguments, "net.arguments", NET, 1, 1, NET_ARGUMENTS, "devices that are not there are refused")
{
	struct abi_props props;
	unsigned char handle[ABI_HANDLE_BYTES];
	void *listen = NULL;
	int ndev = 0;

	net_begin(r);
	OK(net_devices(&r->net, &ndev));
	REFUSED(net_properties(&r->net, ndev, &props));
	REFUSED(net_properties(&r->net, -1, &props));
	REFUSED(net_listen(&r->net, r->net.ctx, ndev, handle, &listen));
	REFUSED(net_listen(&r->net, r->net.ctx, -1, handle, &listen));
}

CASE(net_garbage, "net.garbage-handle", NET, 1, 1, NET_GARBAGE, "a handle that no listen wrote")
{
	unsigned char handle[ABI_HANDLE_BYTES];
	void *send = NULL;
	int result = ABI_SUCCESS;

	net_begin(r);
	pattern_fill(handle, sizeof(handle), key_of(r, 1, 0, 0));
	for (int i = 0; i < 100 && result == ABI_SUCCESS && !send; i++)
		result = net_connect(&r->net, r->net.ctx, r->dev, handle, &send);
	EXPECT(result != ABI_SUCCESS || !send, "expected an error or no comm, got a comm");
}

CASE(net_handle, "net.handle", NET, 1, 1, NET_HANDLE, "listen writes its 128 bytes and no more, many times")
{
	struct link links[8];

	net_begin(r);
	for (int i = 0; i < 8; i++)
		link_listen(r, &links[i]);
	for (int i = 0; i < 8; i++)
		for (int k = 0; k < i; k++)
			EXPECT(memcmp(links[i].handle, links[k].handle, ABI_HANDLE_BYTES) != 0,
				"expected a handle for each listen, got the same for listens %d and %d", k, i);
	for (int i = 0; i < 8; i++)
		OK(net_close_listen(&r->net, links[i].listen));
}

/* One message of some bytes over an open link, all of them checked. */
static void try_link(struct rank *r, struct link *l, int from, int to, uint64_t key)
{
	enum { BYTES = 5000 };
	struct buffer b = buffer_new(BYTES, 0);
	struct message m = { .data = b.data, .size = BYTES, .tag = from };

	if (r->rank != from && r->rank != to)
		return;
	m.receive = r->rank == to;
	m.comm = m.receive ? l->recv : l->send;
	m.mhandle = memory(r, m.comm, b.data, BYTES);
	if (!m.receive)
		pattern_fill(b.data, BYTES, key);
	messages_wait(r, &m, 1, 1);
	pattern_check("first message", b.data, BYTES, key);
	OK(net_dereg_mr(&r->net, m.comm, m.mhandle));
	buffer_free(&b);
}

enum { POLLED = 0 };			/* flag */

static void hand_over_one(struct rank *r, struct link *l, int to)
{
	unsigned char all[MAX_RANKS][ABI_HANDLE_BYTES];

	exchange(r, l->handle, all, ABI_HANDLE_BYTES);
	memcpy(l->handle, all[to], ABI_HANDLE_BYTES);
}

CASE(net_connect_first, "net.connect-first", NET, 2, 2, NET_CONNECT_BLOCKS,
	"connect is polled 2000 times before the peer's first accept")
{
	struct link l = { 0 };

	net_begin(r);
	if (r->rank == 1)
		link_listen(r, &l);
	hand_over_one(r, &l, 1);
	polling(NET_CONNECT);
	if (r->rank == 0) {
		for (int i = 0; i < 2000 && !l.send; i++)
			link_connect(r, &l);
		note(l.send ? "connect ends without the peer" : "connect waits for the peer");
		flag_raise(r, POLLED, 1);
		while (!l.send)
			breathe(r, link_connect(r, &l));
	} else {
		flag_wait(r, POLLED, 1);
		while (!link_accept(r, &l))
			breathe(r, false);
	}
	under(NET_CONNECT);
	try_link(r, &l, 0, 1, key_of(r, 1, 0, 0));
}

CASE(net_accept_first, "net.accept-first", NET, 2, 2, NET_ACCEPT_BLOCKS,
	"accept is polled 2000 times before the peer's first connect")
{
	struct link l = { 0 };

	net_begin(r);
	if (r->rank == 1)
		link_listen(r, &l);
	hand_over_one(r, &l, 1);
	polling(NET_CONNECT);
	if (r->rank == 1) {
		for (int i = 0; i < 2000; i++)
			EXPECT_RULE(NET_CONNECT, !link_accept(r, &l), "expected no comm before a connect, got one");
		flag_raise(r, POLLED, 1);
		while (!link_accept(r, &l))
			breathe(r, false);
	} else {
		flag_wait(r, POLLED, 1);
		while (!link_connect(r, &l))
			breathe(r, false);
	}
	under(NET_CONNECT);
	try_link(r, &l, 0, 1, key_of(r, 1, 0, 0));
}

CASE(net_connect_self, "net.connect-self", NET, 1, 1, NET_CONNECT,
	"connect and accept of one connection in turn on one thread")
{
	struct link l = { 0 };

	net_begin(r);
	link_listen(r, &l);
	polling(NET_CONNECT);
	while (!l.send || !l.recv) {
		if (!l.send)
			link_connect(r, &l);
		if (!l.recv)
			link_accept(r, &l);
		breathe(r, false);
	}
	OK(net_close_listen(&r->net, l.listen));
	l.listen = NULL;
	links_close(r, &l, 1);
}

CASE(net_connect_both, "net.connect-both", NET, 2, 2, NET_CONNECT,
	"both ranks connect and accept in turn on one thread, one polls accept first")
{
	struct link out = { 0 }, in = { 0 };

	net_begin(r);
	link_listen(r, &in);
	memcpy(out.handle, in.handle, ABI_HANDLE_BYTES);
	hand_over_one(r, &out, 1 - r->rank);
	polling(NET_CONNECT);
	while (!out.send || !in.recv) {
		if (r->rank == 0 && !out.send)
			link_connect(r, &out);
		if (!in.recv)
			link_accept(r, &in);
		if (r->rank == 1 && !out.send)
			link_connect(r, &out);
		breathe(r, false);
	}
	polling(RULES);
	try_link(r, r->rank == 0 ? &out : &in, 0, 1, key_of(r, 1, 0, 0));
	try_link(r, r->rank == 1 ? &out : &in, 1, 0, key_of(r, 2, 0, 0));
}

CASE(net_connect_ring, "net.connect-ring", NET, 2, 4, NET_CONNECT,
	"a ring of two channels, each rank connecting to the next and accepting from the one before")
{
	struct link links[2][MAX_RANKS];

	net_begin(r);
	for (int c = 0; c < 2; c++)
		for (int i = 0; i < r->ranks; i++)
			links_open(r, &links[c][i], 1, i, (i + 1) % r->ranks);
	for (int c = 0; c < 2; c++)
		for (int i = 0; i < r->ranks; i++)
			try_link(r, &links[c][i], i, (i + 1) % r->ranks, key_of(r, (uint64_t)c, (uint64_t)i, 0));
	barrier(r);
	for (int c = 0; c < 2; c++)
		links_close(r, links[c], r->ranks);
	OK(net_finalize(&r->net, r->net.ctx));
}

CASE(net_close_listen, "net.close-listen", NET, 2, 2, NET_CLOSE_LISTEN,
	"a connection outlives its listen; a listen that nobody used closes as well")
{
	struct link l, unused = { 0 };

	net_begin(r);
	links_open(r, &l, 1, 0, 1);
	link_listen(r, &unused);
	OK(net_close_listen(&r->net, unused.listen));
	try_link(r, &l, 0, 1, key_of(r, 1, 0, 0));
	barrier(r);
	links_close(r, &l, 1);
}
