/* The queue pairs of a connection, and memory that a device may move. libibverbs is loaded at run time; what stands for
 * its structures is in ibverbs/abi.h. */
#include <dlfcn.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "verbs.h"

#define VERBS(V) \
	V(rdma_mr *, ibv_reg_mr, (rdma_pd *, void *, size_t, int)) \
	V(int, ibv_dereg_mr, (rdma_mr *)) \
	V(int, ibv_query_port, (rdma_context *, uint8_t, rdma_port_attr *)) \
	V(rdma_cq *, ibv_create_cq, (rdma_context *, int, void *, rdma_channel *, int)) \
	V(int, ibv_destroy_cq, (rdma_cq *)) \
	V(rdma_qp *, ibv_create_qp, (rdma_pd *, rdma_qp_init *)) \
	V(int, ibv_modify_qp, (rdma_qp *, rdma_qp_attr *, int)) \
	V(int, ibv_destroy_qp, (rdma_qp *)) \
	V(int, ibv_fork_init, (void)) \
	V(const char *, ibv_wc_status_str, (int))

#define POINTER(result, name, args) static result(*p_##name) args;
VERBS(POINTER)
static rdma_mr *(*p_ibv_reg_dmabuf_mr)(rdma_pd *, uint64_t, size_t, uint64_t, int, int); /* from rdma-core 34 on */

enum {
	ACCESS = RDMA_LOCAL_WRITE | RDMA_REMOTE_WRITE | RDMA_REMOTE_READ,
	ROOM = 4096,    /* of the offers, and a byte that flushes read */
	TRIES = 7,      /* of a packet, the first one included; with 8 soft-RoCE never gives up */
	HOPS = 64,
	PATIENCE = 30000, /* ms, where no timeout is set */
};

const char *p2p_rdma_load(const char *library)
{
	void *lib = dlopen(library, RTLD_NOW | RTLD_LOCAL);

	if (lib == NULL)
		return dlerror();
#define FIND(result, name, args) \
	if ((*(void **)&p_##name = dlsym(lib, #name)) == NULL) \
		return dlerror();
	VERBS(FIND)
	*(void **)&p_ibv_reg_dmabuf_mr = dlsym(lib, "ibv_reg_dmabuf_mr");
	(void)p_ibv_fork_init(); /* before Linux 5.12 a child's birth takes registered pages from the parent */
	return NULL;
}

const char *p2p_verbs_status(int status) { return p_ibv_wc_status_str(status); }

int p2p_rdma_register(void *pd, uintptr_t at, size_t size, struct p2p_memory *m)
{
	rdma_mr *mr = p_ibv_reg_mr(pd, (void *)at, size, ACCESS);

	if (mr == NULL)
		return errno ? errno : EINVAL;
	*m = (struct p2p_memory){.mr = mr, .local = mr->lkey, .remote = mr->rkey};
	return 0;
}

int p2p_rdma_register_dmabuf(void *pd, uint64_t offset, size_t size, uintptr_t at, int fd, struct p2p_memory *m)
{
	rdma_mr *mr;

	if (p_ibv_reg_dmabuf_mr == NULL)
		return EOPNOTSUPP;
	mr = p_ibv_reg_dmabuf_mr(pd, offset, size, at, fd, ACCESS);
	if (mr == NULL)
		return errno ? errno : EINVAL;
	*m = (struct p2p_memory){.mr = mr, .local = mr->lkey, .remote = mr->rkey};
	return 0;
}

int p2p_rdma_deregister(struct p2p_memory *m) { return p_ibv_dereg_mr(m->mr); }

/* Whether a device takes DMA-BUFs: such a device answers a bad descriptor with an error about the descriptor. */
int p2p_rdma_takes_dmabuf(void *pd)
{
	rdma_mr *none;

	if (p_ibv_reg_dmabuf_mr == NULL)
		return 0;
	none = p_ibv_reg_dmabuf_mr(pd, 0, 0, 0, -1, 0);
	if (none != NULL)
		(void)p_ibv_dereg_mr(none);
	return none != NULL || (errno != EOPNOTSUPP && errno != EPROTONOSUPPORT);
}

static int to_init(rdma_qp *qp, int port, int access)
{
	rdma_qp_attr a = {.qp_state = RDMA_INIT, .port_num = (uint8_t)port, .qp_access_flags = (unsigned)access};

	return p_ibv_modify_qp(qp, &a, RDMA_SET_STATE | RDMA_SET_PKEY | RDMA_SET_PORT | RDMA_SET_ACCESS);
}

/* The exponent of the time after which a packet is sent again: for the timeout, and twice that at most as devices
 * should count. A path may be away, or the peer's machine pause, for less than that. */
static uint8_t retry_after(unsigned timeout)
{
	const uint64_t least = (timeout ? timeout : PATIENCE) * (uint64_t)1000000; /* ns */
	uint8_t e = 8;

	while (e < 31 && TRIES * ((uint64_t)4096 << e) < least)
		e++;
	return e;
}

static int to_ready(rdma_qp *qp, const struct p2p_device *d, unsigned timeout, const uint8_t gid[16], unsigned mtu,
	uint32_t number,
		    uint32_t own_psn, uint32_t psn)
{
	rdma_qp_attr a = {
		.qp_state = RDMA_RTR,
		.path_mtu = __builtin_ctz(mtu) - 7,
		.dest_qp_num = number,
		.rq_psn = psn & 0xffffff,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12, /* 0.64 ms */
		.ah_attr = {.is_global = 1, .port_num = (uint8_t)d->port,
			.grh = {.sgid_index = (uint8_t)d->gid_index, .hop_limit = HOPS}},
	};
	int e;

	memcpy(a.ah_attr.grh.dgid, gid, 16);
	e = p_ibv_modify_qp(qp, &a, RDMA_SET_STATE | RDMA_SET_PATH | RDMA_SET_MTU | RDMA_SET_PEER | RDMA_SET_RQ_PSN |
		RDMA_SET_PEER_READS |
					    RDMA_SET_RNR_TIMER);
	if (e)
		return e;
	a.qp_state = RDMA_RTS;
	a.timeout = retry_after(timeout);
	a.retry_cnt = TRIES - 1;
	a.rnr_retry = 1; /* receives are posted before they are offered */
	a.sq_psn = own_psn & 0xffffff;
	a.max_rd_atomic = 1;
	return p_ibv_modify_qp(qp, &a,
		RDMA_SET_STATE | RDMA_SET_TIMEOUT | RDMA_SET_RETRIES | RDMA_SET_RNR_RETRIES | RDMA_SET_SQ_PSN | RDMA_SET_READS);
}

static int make_queues(struct p2p_verbs *v, const struct p2p_device *d, int sending, const char **what)
{
	rdma_qp_init init = {
		.cap = {.max_send_wr = POSTED, .max_recv_wr = sending ? 1 : P2P_IN_FLIGHT, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = RDMA_QPT_RC,
	};
	int i, e;

	*what = "mmap";
	v->offers = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (v->offers == MAP_FAILED) {
		v->offers = NULL;
		return errno ? errno : EINVAL;
	}
	(void)madvise(v->offers, ROOM, MADV_DONTFORK);
	*what = "ibv_reg_mr";
	if ((v->mr = p_ibv_reg_mr(v->pd, v->offers, ROOM, ACCESS)) == NULL)
		return errno ? errno : EINVAL;
	*what = "ibv_create_cq";
	v->cq = p_ibv_create_cq(v->pd->context, v->lanes * (POSTED + P2P_IN_FLIGHT) + P2P_IN_FLIGHT, NULL, NULL, 0);
	if (v->cq == NULL)
		return errno ? errno : EINVAL;
	init.send_cq = init.recv_cq = v->cq;
	*what = "ibv_create_qp";
	for (i = 0; i < v->lanes; i++)
		if ((v->lane[i] = p_ibv_create_qp(v->pd, &init)) == NULL)
			return errno ? errno : EINVAL;
	init.cap.max_send_wr = P2P_IN_FLIGHT;
	if (!sending && (v->loop = p_ibv_create_qp(v->pd, &init)) == NULL)
		return errno ? errno : EINVAL;
	*what = "ibv_modify_qp to INIT";
	for (i = 0; i < v->lanes; i++)
		if ((e = to_init(v->lane[i], d->port, RDMA_LOCAL_WRITE | RDMA_REMOTE_WRITE)))
			return e;
	return v->loop ? to_init(v->loop, d->port, RDMA_LOCAL_WRITE | RDMA_REMOTE_READ) : 0;
}

struct p2p_verbs *p2p_verbs_open(const struct p2p_device *d, int sending, int lanes, unsigned timeout, uint32_t psn,
				 struct p2p_introduction *own, const char **what)
{
	struct p2p_verbs *v = calloc(1, sizeof(*v));
	rdma_port_attr port = {0};
	int i, e;

	*what = "calloc";
	if (v == NULL)
		return NULL;
	v->pd = d->pd;
	v->lanes = lanes;
	v->timeout = timeout;
	*what = "ibv_query_port";
	e = p_ibv_query_port(v->pd->context, (uint8_t)d->port, &port);
	v->piece = port.max_msg_sz ? port.max_msg_sz : POSTED << 20;
	if (!e)
		e = make_queues(v, d, sending, what);
	if (e) {
		p2p_verbs_close(v);
		errno = e;
		return NULL;
	}
	*own = (struct p2p_introduction){
		.psn = htole32(psn), .mtu = htole32((uint32_t)d->mtu), .lanes = htole32((uint32_t)lanes),
		.key = htole32(v->mr->rkey), .offers = htole64((uintptr_t)v->offers),
	};
	memcpy(own->gid, d->gid, 16);
	for (i = 0; i < lanes; i++)
		own->number[i] = htole32(v->lane[i]->qp_num);
	return v;
}

int p2p_verbs_expect(struct p2p_verbs *v, unsigned lane)
{
	rdma_recv_wr wr = {.wr_id = lane}, *bad;

	return v->lane[lane]->context->ops.post_recv(v->lane[lane], &wr, &bad);
}

int p2p_verbs_join(struct p2p_verbs *v, const struct p2p_device *d, const struct p2p_introduction *own,
	const struct p2p_introduction *peer,
		   const char **what)
{
	unsigned mtu = le32toh(peer->mtu), i, k;
	int e;

	*what = "what the peer says of its queue pairs";
	if (le32toh(peer->lanes) != (uint32_t)v->lanes || mtu < 256 || mtu > 4096 || (mtu & (mtu - 1)))
		return EPROTO;
	if (mtu > (unsigned)d->mtu)
		mtu = (unsigned)d->mtu;
	v->theirs = le64toh(peer->offers);
	v->theirs_key = le32toh(peer->key);
	*what = "ibv_modify_qp to RTR and RTS";
	for (i = 0; i < (unsigned)v->lanes; i++)
		if ((e = to_ready(v->lane[i], d, v->timeout, peer->gid, mtu, le32toh(peer->number[i]), le32toh(own->psn),
			le32toh(peer->psn))))
			return e;
	if (v->loop == NULL)
		return 0;
	if ((e = to_ready(v->loop, d, v->timeout, d->gid, (unsigned)d->mtu, v->loop->qp_num, le32toh(own->psn),
		le32toh(own->psn))))
		return e;
	*what = "ibv_post_recv";
	for (i = 0; i < (unsigned)v->lanes; i++)
		for (k = 0; k < P2P_IN_FLIGHT; k++)
			if ((e = p2p_verbs_expect(v, i)))
				return e;
	return 0;
}

/* From the end of its queue pairs on a device touches nobody's memory. */
void p2p_verbs_close(struct p2p_verbs *v)
{
	int i;

	for (i = 0; i < v->lanes; i++)
		if (v->lane[i] != NULL)
			(void)p_ibv_destroy_qp(v->lane[i]);
	if (v->loop != NULL)
		(void)p_ibv_destroy_qp(v->loop);
	if (v->cq != NULL)
		(void)p_ibv_destroy_cq(v->cq);
	if (v->mr != NULL)
		(void)p_ibv_dereg_mr(v->mr);
	if (v->offers != NULL)
		(void)munmap(v->offers, ROOM);
	free(v);
}
