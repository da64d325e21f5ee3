#include "library.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

int rdma_completions_open(rdma_completions *c, rdma_context *context, int depth, const char **what)
{
	memset(c, 0, sizeof *c);
	*what = "ibv_create_comp_channel";
	if (!(c->channel = p_ibv_create_comp_channel(context)))
		return errno ? errno : EINVAL;
	*what = "ibv_create_cq";
	if (!(c->cq = p_ibv_create_cq(context, depth, NULL, c->channel, 0)))
		return errno ? errno : EINVAL;
	*what = "fcntl";
	int flags = fcntl(c->channel->fd, F_GETFL);
	return flags < 0 || fcntl(c->channel->fd, F_SETFL, flags | O_NONBLOCK) < 0 ? errno : 0;
}

void rdma_completions_close(rdma_completions *c)
{
	if (c->cq)
		p_ibv_destroy_cq(c->cq);
	if (c->channel)
		p_ibv_destroy_comp_channel(c->channel);
	memset(c, 0, sizeof *c);
}

static void completed(void *to, int i, const rdma_wc *wc)
{
	((rdma_completion *)to)[i] = (rdma_completion){wc->wr_id, wc->byte_len, ntohl(wc->imm_data), wc->status,
		wc->opcode >= RDMA_RECEIVED};
}

int rdma_completions_poll(rdma_completions *c, rdma_completion *done, int most)
{
	return rdma_poll(c->cq, most, completed, done);
}

int rdma_completions_arm(rdma_completions *c)
{
	rdma_cq *cq;
	void *context;
	while (!p_ibv_get_cq_event(c->channel, &cq, &context))
		p_ibv_ack_cq_events(cq, 1);
	return c->cq->context->ops.req_notify_cq(c->cq, 0);
}

rdma_qp *rdma_connection_open(rdma_pd *pd, const rdma_place *at, rdma_completions *sends, rdma_completions *receives,
	int send, int receive,
                              const char **what)
{
	rdma_qp_init init = {.send_cq = sends->cq,
	                     .recv_cq = receives->cq,
	                     .cap = {.max_send_wr = send, .max_recv_wr = receive, .max_send_sge = 1, .max_recv_sge = 1},
	                     .qp_type = RDMA_QPT_RC};
	*what = "ibv_create_qp";
	rdma_qp *qp = p_ibv_create_qp(pd, &init);
	if (!qp)
		return NULL;
	rdma_qp_attr a = {.qp_state = RDMA_INIT, .port_num = at->port, .pkey_index = at->pkey_index,
		.qp_access_flags = RDMA_REMOTE_WRITE | RDMA_REMOTE_READ};
	*what = "ibv_modify_qp";
	int e = p_ibv_modify_qp(qp, &a, RDMA_SET_STATE | RDMA_SET_PKEY | RDMA_SET_PORT | RDMA_SET_ACCESS);
	if (e) {
		p_ibv_destroy_qp(qp);
		errno = e;
		return NULL;
	}
	return qp;
}

// reads is how many RDMA Reads are under way at most, each way: as few as devices have that have few. With 7 retries
// soft-RoCE would never give up.
enum { reads = 4, retries = 6, for_ever = 7, rnr_timer = 12 /* 0.64 ms */, hops = 64 };

int rdma_join_peer(rdma_qp *qp, const rdma_place *at, const rdma_address *own, const rdma_address *peer, int timeout,
	uint8_t tclass)
{
	uint32_t mtu = peer->mtu < own->mtu ? peer->mtu : own->mtu;
	rdma_qp_attr a = {
		.qp_state = RDMA_RTR,
		.ah_attr = {.grh = {.sgid_index = at->gid_index, .hop_limit = hops, .traffic_class = tclass}, .is_global = 1,
			.port_num = at->port},
		.path_mtu = __builtin_ctz(mtu) - 7, // 1: 256 bytes
		.dest_qp_num = peer->qpn,
		.rq_psn = peer->psn,
		.max_dest_rd_atomic = reads,
		.min_rnr_timer = rnr_timer,
	};
	memcpy(a.ah_attr.grh.dgid, peer->gid, 16);
	if (at->lid) // within a subnet, without a GRH
		a.ah_attr = (rdma_ah_attr){.dlid = peer->lid, .port_num = at->port};
	int e = p_ibv_modify_qp(qp, &a,
		RDMA_SET_STATE | RDMA_SET_PATH | RDMA_SET_MTU | RDMA_SET_PEER | RDMA_SET_RQ_PSN | RDMA_SET_PEER_READS |
	                                    RDMA_SET_RNR_TIMER);
	if (e)
		return e;
	a = (rdma_qp_attr){.qp_state = RDMA_RTS, .timeout = timeout, .retry_cnt = retries, .rnr_retry = for_ever,
		.sq_psn = own->psn,
	                   .max_rd_atomic = reads};
	return p_ibv_modify_qp(qp, &a,
		RDMA_SET_STATE | RDMA_SET_TIMEOUT | RDMA_SET_RETRIES | RDMA_SET_RNR_RETRIES | RDMA_SET_SQ_PSN |
	                                   RDMA_SET_READS);
}

int rdma_fail(rdma_qp *qp)
{
	rdma_qp_attr a = {.qp_state = RDMA_ERROR};
	return p_ibv_modify_qp(qp, &a, RDMA_SET_STATE);
}

int rdma_connection_close(rdma_qp *qp) { return p_ibv_destroy_qp(qp); }

int rdma_post_transfers(rdma_qp *qp, const rdma_transfer *t, int n, int *posted)
{
	rdma_send_wr wr[doorbell], *bad = wr;
	rdma_sge sge[doorbell];
	for (*posted = 0; *posted < n;) {
		int k = n - *posted < doorbell ? n - *posted : doorbell;
		for (int i = 0; i < k; i++, t++) {
			sge[i] = (rdma_sge){t->local, t->bytes, t->local_key};
			wr[i] = (rdma_send_wr){.wr_id = t->id, .next = i + 1 < k ? &wr[i + 1] : NULL, .sg_list = &sge[i],
				.num_sge = t->bytes > 0,
			                       .opcode = t->opcode, .send_flags = RDMA_SIGNALED, .imm_data = htonl(t->immediate)};
			wr[i].wr.rdma.remote_addr = t->remote;
			wr[i].wr.rdma.rkey = t->remote_key;
		}
		int e = qp->context->ops.post_send(qp, wr, &bad);
		if (e) {
			*posted += bad - wr;
			return e;
		}
		*posted += k;
	}
	return 0;
}

int rdma_post_buffers(rdma_qp *qp, uint64_t id, int n)
{
	rdma_recv_wr wr[doorbell], *bad;
	int e = 0;
	while (n > 0 && !e) {
		int k = n < doorbell ? n : doorbell;
		for (int i = 0; i < k; i++)
			wr[i] = (rdma_recv_wr){id, i + 1 < k ? &wr[i + 1] : NULL, NULL, 0};
		e = qp->context->ops.post_recv(qp, wr, &bad);
		n -= k;
	}
	return e;
}
