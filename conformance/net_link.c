#include <string.h>

#include "net_link.h"

struct abi_props net_begin(struct rank *r)
{
	struct abi_props props;
	enum rule was = under(NET_LOAD);
	int ndev = -1;

	OK(net_init(&r->net, 1, NULL));
	OK(net_devices(&r->net, &ndev));
	EXPECT(ndev > r->dev, "expected more than %d devices, got %d", r->dev, ndev);
	OK(net_properties(&r->net, r->dev, &props));
	under(was);
	return props;
}

void link_listen(struct rank *r, struct link *l)
{
	struct buffer handle = buffer_new(ABI_HANDLE_BYTES, 0);
	enum rule was = under(NET_CONNECT);

	l->listen = NULL;
	OK(net_listen(&r->net, r->net.ctx, r->dev, handle.data, &l->listen));
	EXPECT(l->listen, "expected a listen comm, got NULL");
	guards_check("handle", NET_HANDLE, &handle, ABI_HANDLE_BYTES);
	memcpy(l->handle, handle.data, ABI_HANDLE_BYTES);
	buffer_free(&handle);
	under(was);
}

bool link_connect(struct rank *r, struct link *l)
{
	enum rule was = under(NET_CONNECT_BLOCKS);

	OK(net_connect(&r->net, r->net.ctx, r->dev, l->handle, &l->send));
	under(was);
	return l->send != NULL;
}

bool link_accept(struct rank *r, struct link *l)
{
	enum rule was = under(NET_ACCEPT_BLOCKS);

	OK(net_accept(&r->net, r->net.ctx, l->listen, &l->recv));
	under(was);
	return l->recv != NULL;
}

/* Handles go by the board, as NCCL's bootstrap carries them. */
static void hand_over(struct rank *r, struct link *links, int count, int to)
{
	enum { EACH = EXCHANGE_BYTES / ABI_HANDLE_BYTES };
	unsigned char mine[EXCHANGE_BYTES], all[MAX_RANKS][EXCHANGE_BYTES];

	for (int first = 0; first < count; first += EACH) {
		memset(mine, 0, sizeof(mine));
		for (int i = 0; i < EACH && first + i < count; i++)
			memcpy(mine + i * ABI_HANDLE_BYTES, links[first + i].handle, ABI_HANDLE_BYTES);
		exchange(r, mine, all, sizeof(mine));
		for (int i = 0; i < EACH && first + i < count; i++)
			memcpy(links[first + i].handle, all[to] + i * ABI_HANDLE_BYTES, ABI_HANDLE_BYTES);
	}
}

void links_open(struct rank *r, struct link *links, int count, int from, int to)
{
	enum rule was = under(NET_CONNECT), was_polling = polling(NET_CONNECT);
	int missing;

	for (int i = 0; i < count; i++) {
		memset(&links[i], 0, sizeof(links[i]));
		if (r->rank == to)
			link_listen(r, &links[i]);
	}
	hand_over(r, links, count, to);
	do {
		missing = 0;
		for (int i = 0; i < count; i++) {
			if (r->rank == from && !links[i].send)
				missing += !link_connect(r, &links[i]);
			if (r->rank == to && !links[i].recv)
				missing += !link_accept(r, &links[i]);
		}
		breathe(r, missing == 0);
	} while (missing > 0);
	for (int i = 0; i < count && r->rank == to; i++) {
		OK(net_close_listen(&r->net, links[i].listen));
		links[i].listen = NULL;
	}
	polling(was_polling);
	under(was);
}

void links_close(struct rank *r, struct link *links, int count)
{
	enum rule was = under(NET_CLOSE);

	for (int i = 0; i < count; i++) {
		if (links[i].send)
			OK(net_close_send(&r->net, links[i].send));
		if (links[i].recv)
			OK(net_close_recv(&r->net, links[i].recv));
		if (links[i].listen)
			OK(net_close_listen(&r->net, links[i].listen));
		memset(&links[i], 0, sizeof(links[i]));
	}
	under(was);
}

bool message_post(struct rank *r, struct message *m)
{
	m->request = m->hint;
	m->got = UNSAID;
	if (m->receive)
		OK(net_irecv(&r->net, m->comm, 1, &m->data, &m->size, &m->tag, &m->mhandle, &m->phandle, &m->request));
	else
		OK(net_isend(&r->net, m->comm, m->data, m->size, m->tag, m->mhandle, m->phandle, &m->request));
	if (m->hint)
		EXPECT_RULE(NET_REQUEST_OUT, m->request != m->hint,
			"expected *request set to a request or NULL, got the 0x1 that it held");
	m->posted = m->request != NULL;
	return m->posted;
}

bool message_test(struct rank *r, struct message *m)
{
	int done = 0;

	OK(net_test(&r->net, m->request, &done, m->quiet ? NULL : &m->got));
	if (!done)
		return false;
	m->done = true;
	if (m->receive && !m->quiet)
		EXPECT_RULE(NET_SIZE, m->got >= 0 && (size_t)m->got <= m->size,
			"expected test to give a size of 0 to %zu, got %d%s", m->size, m->got,
			m->got == UNSAID ? " (not written)" : "");
	if (m->receive)
		OK(net_consumed(&r->net, m->comm, 1, m->request));
	m->request = NULL;
	return true;
}

bool messages_turn(struct rank *r, struct message *m, int count, int in_flight)
{
	bool moved = false;

	for (int i = 0; i < count; i++) {
		int ahead = 0;
		bool blocked = false;

		if (m[i].posted && !m[i].done)
			moved |= message_test(r, &m[i]);
		if (m[i].posted)
			continue;
		for (int k = 0; k < i; k++)
			if (m[k].comm == m[i].comm) {
				ahead += m[k].posted && !m[k].done;
				blocked |= !m[k].posted;
			}
		if (!blocked && ahead < in_flight)
			moved |= message_post(r, &m[i]);
	}
	return moved;
}

void messages_wait(struct rank *r, struct message *m, int count, int in_flight)
{
	enum rule was = polling(NET_COMPLETION);
	int left;

	do {
		breathe(r, messages_turn(r, m, count, in_flight));
		left = 0;
		for (int i = 0; i < count; i++)
			left += !m[i].done;
	} while (left > 0);
	polling(was);
}

void *memory(struct rank *r, void *comm, void *data, size_t size)
{
	enum rule was = under(NET_MHANDLE);
	void *mhandle = NULL;

	OK(net_reg_mr(&r->net, comm, data, size, ABI_PTR_HOST, &mhandle));
	EXPECT(mhandle, "expected a memory handle for %zu bytes, got NULL", size);
	under(was);
	return mhandle;
}
