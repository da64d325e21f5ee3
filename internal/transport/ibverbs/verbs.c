#include "library.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>

// inlined is how many bytes a datagram has at most that the device need not fetch: a header and a few numbers.
enum { inlined = 128 };

rdma_device **rdma_list(int *n) { return p_ibv_get_device_list(n); }
void rdma_unlist(rdma_device **list) { p_ibv_free_device_list(list); }
const char *rdma_name(rdma_device *d) { return p_ibv_get_device_name(d); }
rdma_context *rdma_open(rdma_device *d) { return p_ibv_open_device(d); }
int rdma_close(rdma_context *c) { return p_ibv_close_device(c); }
rdma_pd *rdma_alloc(rdma_context *c) { return p_ibv_alloc_pd(c); }
int rdma_dealloc(rdma_pd *pd) { return p_ibv_dealloc_pd(pd); }
rdma_mr *rdma_register(rdma_pd *pd, uintptr_t p, size_t n,
	int access) { return p_ibv_reg_mr(pd, (void *)p, n, access); }
int rdma_survives_fork(void) { return p_ibv_is_fork_initialized ? p_ibv_is_fork_initialized() != RDMA_FORK_DISABLED :
	-1; }
int rdma_deregister(rdma_mr *mr) { return p_ibv_dereg_mr(mr); }
const char *rdma_status(int status) { return p_ibv_wc_status_str(status); }

int rdma_find(rdma_context *c, uint32_t ifindex, const uint8_t address[4], rdma_place *at)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	int found = ENODEV;
	rdma_port_attr p = {0};
	for (int port = 1; port < 256 && !p_ibv_query_port(c, port, &p); port++) {
		for (int i = 0; i < p.gid_tbl_len; i++) {
			rdma_gid_entry e;
			if (p__ibv_query_gid_ex(c, port, i, &e, 0, sizeof e) || e.ndev_ifindex != ifindex)
				continue;
			if (p.state != RDMA_PORT_ACTIVE) {
				found = ENETDOWN;
				break;
			}
			found = EADDRNOTAVAIL;
			if (e.gid_type != RDMA_ROCE_V2 || memcmp(e.gid, mapped, 12) || memcmp(e.gid + 12, address, 4))
				continue;
			at->port = port;
			at->gid_index = i;
			at->mtu = 128 << p.active_mtu;
			memcpy(at->gid, e.gid, 16);
			return 0;
		}
	}
	return found;
}

int rdma_find_port(rdma_context *c, int port, int pkey_index, rdma_place *at)
{
	rdma_port_attr p = {0};
	rdma_gid_entry e;
	if (p_ibv_query_port(c, port, &p) || p.link_layer != RDMA_INFINIBAND)
		return ENODEV;
	if (p.state != RDMA_PORT_ACTIVE)
		return ENETDOWN;
	if (p__ibv_query_gid_ex(c, port, 0, &e, 0, sizeof e))
		return EADDRNOTAVAIL;
	*at = (rdma_place){.port = port, .mtu = 128 << p.active_mtu, .lid = p.lid, .pkey_index = pkey_index};
	memcpy(at->gid, e.gid, 16);
	return 0;
}

int rdma_infiniband(rdma_context *c)
{
	rdma_port_attr p = {0};
	for (int port = 1; port < 256 && !p_ibv_query_port(c, port, &p); port++)
		if (p.link_layer == RDMA_INFINIBAND)
			return 1;
	return 0;
}

static int open_queues(rdma_queue *q, int send, int receive, const char **what)
{
	*what = "ibv_create_comp_channel";
	if (!(q->channel = p_ibv_create_comp_channel(q->pd->context)))
		return errno ? errno : EINVAL;
	*what = "ibv_create_cq";
	if (!(q->sends = p_ibv_create_cq(q->pd->context, send, NULL, q->channel, 0)) ||
	    !(q->receives = p_ibv_create_cq(q->pd->context, receive, NULL, q->channel, 0)))
		return errno ? errno : EINVAL;
	rdma_qp_init init = {.send_cq = q->sends,
	                     .recv_cq = q->receives,
	                     .cap = {.max_send_wr = send, .max_recv_wr = receive, .max_send_sge = 2, .max_recv_sge = 1,
	                             .max_inline_data = inlined},
	                     .qp_type = RDMA_QPT_UD};
	*what = "ibv_create_qp";
	if (!(q->qp = p_ibv_create_qp(q->pd, &init))) {
		init.cap.max_inline_data = 0; // not all devices can
		if (!(q->qp = p_ibv_create_qp(q->pd, &init)))
			return errno ? errno : EINVAL;
	}
	q->inlined = init.cap.max_inline_data;
	*what = "fcntl";
	int flags = fcntl(q->channel->fd, F_GETFL);
	return flags < 0 || fcntl(q->channel->fd, F_SETFL, flags | O_NONBLOCK) < 0 ? errno : 0;
}

static int ready(rdma_queue *q, const rdma_place *at)
{
	rdma_qp_attr a = {.qp_state = RDMA_INIT, .port_num = at->port, .pkey_index = at->pkey_index, .qkey = q->qkey};
	int e = p_ibv_modify_qp(q->qp, &a, RDMA_SET_STATE | RDMA_SET_PKEY | RDMA_SET_PORT | RDMA_SET_QKEY);
	if (e)
		return e;
	a.qp_state = RDMA_RTR;
	if ((e = p_ibv_modify_qp(q->qp, &a, RDMA_SET_STATE)))
		return e;
	a.qp_state = RDMA_RTS;
	return p_ibv_modify_qp(q->qp, &a, RDMA_SET_STATE | RDMA_SET_SQ_PSN);
}

rdma_target rdma_target_of(const rdma_place *at, const uint8_t group[16], uint8_t tclass, uint8_t hops, uint32_t qkey)
{
	rdma_target to = {
		.path = {.grh = {.sgid_index = at->gid_index, .hop_limit = hops, .traffic_class = tclass}, .is_global = 1,
			.port_num = at->port},
		.qkey = qkey,
	};
	memcpy(to.path.grh.dgid, group, 16);
	return to;
}

rdma_target rdma_target_joined(const rdma_place *at, const rdma_membership *m, uint8_t tclass, uint8_t hops)
{
	rdma_target to = {m->path, m->qkey};
	// On Ethernet these are the sender's to choose, and librdmacm chooses one hop; else the group has them.
	if (!at->lid) {
		to.path.grh.sgid_index = at->gid_index;
		to.path.grh.hop_limit = hops;
		to.path.grh.traffic_class = tclass;
	}
	return to;
}

int rdma_queue_open(rdma_queue *q, rdma_pd *pd, const rdma_place *at, rdma_target to, int send, int receive,
	const char **what)
{
	memset(q, 0, sizeof *q);
	q->pd = pd;
	q->qkey = to.qkey;
	q->lid = to.path.dlid;
	memcpy(q->group, to.path.grh.dgid, 16);
	int e = open_queues(q, send, receive, what);
	if (e)
		return e;
	*what = "ibv_modify_qp";
	if ((e = ready(q, at)))
		return e;
	*what = "ibv_create_ah";
	if (!(q->ah = p_ibv_create_ah(pd, &to.path)))
		return errno ? errno : EINVAL;
	*what = "ibv_attach_mcast";
	if ((e = p_ibv_attach_mcast(q->qp, q->group, q->lid)))
		return e;
	q->attached = 1;
	return 0;
}

void rdma_queue_close(rdma_queue *q)
{
	if (q->attached)
		p_ibv_detach_mcast(q->qp, q->group, q->lid);
	if (q->ah)
		p_ibv_destroy_ah(q->ah);
	if (q->qp)
		p_ibv_destroy_qp(q->qp);
	if (q->receives)
		p_ibv_destroy_cq(q->receives);
	if (q->sends)
		p_ibv_destroy_cq(q->sends);
	if (q->channel)
		p_ibv_destroy_comp_channel(q->channel);
	memset(q, 0, sizeof *q);
}

int rdma_post_receive(rdma_queue *q, rdma_mr *ring, size_t slot, const uint32_t *slots, int n)
{
	rdma_recv_wr wr[doorbell], *bad = wr;
	rdma_sge sge[doorbell];
	for (q->posted = 0; q->posted < n;) {
		int k = n - q->posted < doorbell ? n - q->posted : doorbell;
		for (int i = 0; i < k; i++) {
			uint32_t s = slots[q->posted + i];
			sge[i] = (rdma_sge){(uintptr_t)ring->addr + s * slot, slot, ring->lkey};
			wr[i] = (rdma_recv_wr){s, i + 1 < k ? &wr[i + 1] : NULL, &sge[i], 1};
		}
		int e = q->qp->context->ops.post_recv(q->qp, wr, &bad);
		if (e) {
			q->posted += bad - wr;
			return e;
		}
		q->posted += k;
	}
	return 0;
}

int rdma_post_send(rdma_queue *q, rdma_mr *ring, size_t slot, uint32_t count, uint64_t first, const uint32_t *bytes,
	int n)
{
	rdma_send_wr wr[doorbell], *bad = wr;
	rdma_sge sge[doorbell][2];
	const rdma_payload *p = &q->payload;
	for (q->posted = 0; q->posted < n;) {
		int k = n - q->posted < doorbell ? n - q->posted : doorbell;
		for (int i = 0; i < k; i++) {
			int j = q->posted + i;
			uint64_t at = first + j, skip = (uint64_t)j * p->each;
			sge[i][0] = (rdma_sge){(uintptr_t)ring->addr + at % count * slot, bytes[j], ring->lkey};
			wr[i] = (rdma_send_wr){.wr_id = at + 1, .next = &wr[i + 1], .sg_list = sge[i], .num_sge = 1, .opcode = RDMA_SEND};
			if (skip < p->bytes) {
				uint64_t rest = p->bytes - skip;
				sge[i][1] = (rdma_sge){p->at + skip, rest < p->each ? rest : p->each, p->lkey};
				wr[i].num_sge = 2;
			} else if (bytes[j] <= q->inlined) {
				wr[i].send_flags = RDMA_INLINE;
			}
			wr[i].wr.ud.ah = q->ah;
			wr[i].wr.ud.remote_qpn = RDMA_MULTICAST_QPN;
			wr[i].wr.ud.remote_qkey = q->qkey;
		}
		wr[k - 1].next = NULL;
		wr[k - 1].send_flags |= RDMA_SIGNALED;
		int e = q->qp->context->ops.post_send(q->qp, wr, &bad);
		if (e) {
			q->posted += bad - wr;
			return e;
		}
		q->posted += k;
	}
	return 0;
}

static void arrived(void *to, int i, const rdma_wc *wc)
{
	uint32_t bytes = wc->byte_len > RDMA_GRH ? wc->byte_len - RDMA_GRH : 0;
	((rdma_arrival *)to)[i] = (rdma_arrival){wc->wr_id, wc->status ? 0 : bytes, wc->src_qp, wc->status};
}

int rdma_arrivals(rdma_queue *q, rdma_arrival *a, int most)
{
	return rdma_poll(q->receives, most, arrived, a);
}

static void sent(void *to, int i, const rdma_wc *wc)
{
	(void)i;
	rdma_queue *q = to;
	if (wc->status)
		q->failed = wc->status;
	q->sent = wc->wr_id;
}

int rdma_sent(rdma_queue *q)
{
	q->failed = 0;
	return rdma_poll(q->sends, INT_MAX, sent, q) < 0 ? -1 : q->failed;
}

int rdma_arm(rdma_queue *q, int sends)
{
	rdma_cq *cq;
	void *context;
	while (!p_ibv_get_cq_event(q->channel, &cq, &context))
		p_ibv_ack_cq_events(cq, 1);
	int e = q->qp->context->ops.req_notify_cq(q->receives, 0);
	return e || !sends ? e : q->qp->context->ops.req_notify_cq(q->sends, 0);
}
