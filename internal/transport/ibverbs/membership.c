#include "library.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <time.h>

static struct sockaddr_in at(const uint8_t address[4])
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	memcpy(&a.sin_addr, address, 4);
	return a;
}

static int failed(void) { return errno ? errno : EINVAL; }

int rdma_member_open(rdma_membership *m, const uint8_t address[4], const char **what)
{
	memset(m, 0, sizeof *m);
	*what = "rdma_create_event_channel";
	if (!(m->channel = p_rdma_create_event_channel()))
		return failed();
	*what = "fcntl";
	int flags = fcntl(m->channel->fd, F_GETFL);
	if (flags < 0 || fcntl(m->channel->fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return failed();
	*what = "rdma_create_id";
	if (p_rdma_create_id(m->channel, &m->id, NULL, RDMA_CM_UDP))
		return failed();
	*what = "rdma_bind_addr";
	struct sockaddr_in own = at(address);
	if (p_rdma_bind_addr(m->id, (struct sockaddr *)&own))
		return failed();
	if (!m->id->verbs) // an address of no device is no error to the library
		return ENODEV;
	m->port = m->id->port_num;
	*what = "rdma_init_qp_attr";
	rdma_qp_attr a = {.qp_state = RDMA_INIT};
	int mask = 0;
	if (p_rdma_init_qp_attr(m->id, &a, &mask))
		return failed();
	m->pkey_index = a.pkey_index;
	return 0;
}

const char *rdma_member_device(rdma_membership *m) { return p_ibv_get_device_name(m->id->verbs->device); }

static int64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

// await takes events until one says how the join ended, or a time is reached. It acknowledges each, or rdma_destroy_id
// would wait for that.
static int await(rdma_membership *m, int64_t end)
{
	for (;;) {
		rdma_cm_event *e;
		if (!p_rdma_get_cm_event(m->channel, &e)) {
			const int kind = e->event;
			m->status = e->status;
			m->path = e->ud.ah_attr;
			m->qkey = e->ud.qkey;
			p_rdma_ack_cm_event(e);
			if (kind == RDMA_CM_JOINED && !m->status)
				return 0;
			if (kind == RDMA_CM_JOINED || kind == RDMA_CM_REFUSED)
				return ECONNREFUSED;
			continue; // of addresses and ports, which is not asked for
		}
		if (errno != EAGAIN && errno != EINTR)
			return failed();
		const int64_t left = end - now();
		if (left <= 0)
			return ETIMEDOUT;
		struct pollfd p = {.fd = m->channel->fd, .events = POLLIN};
		if (poll(&p, 1, left) < 0 && errno != EINTR)
			return failed();
	}
}

int rdma_member_join(rdma_membership *m, const uint8_t group[4], int within, const char **what)
{
	struct sockaddr_in to = at(group);
	memcpy(m->group, group, 4);
	*what = "rdma_join_multicast";
	if (p_rdma_join_multicast(m->id, (struct sockaddr *)&to, NULL))
		return failed();
	int e = await(m, now() + within);
	m->joined = !e;
	return e;
}

void rdma_member_close(rdma_membership *m)
{
	struct sockaddr_in from = at(m->group);
	if (m->joined)
		p_rdma_leave_multicast(m->id, (struct sockaddr *)&from);
	if (m->id)
		p_rdma_destroy_id(m->id); // and with it a join that has not ended
	if (m->channel)
		p_rdma_destroy_event_channel(m->channel);
	memset(m, 0, sizeof *m);
}
