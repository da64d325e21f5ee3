// A libibverbs for tests without devices: one device, on the interface 1 (lo) at 127.0.0.1, that registers memory up to
// FAKE_MEMLOCK bytes (unsigned; none: any). It sends nothing. With OLD defined it is older than rdma-core 37, and with
// INFINIBAND defined its port is one of InfiniBand's.
#include "../abi.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static rdma_context context;
static rdma_pd pd = {&context, 0};
static size_t locked;

rdma_device **ibv_get_device_list(int *n)
{
	rdma_device **list = calloc(2, sizeof *list);
	list[0] = (rdma_device *)&context;
	*n = 1;
	return list;
}
void ibv_free_device_list(rdma_device **list) { free(list); }
const char *ibv_get_device_name(rdma_device *d) { return (void)d, "fake0"; }
rdma_context *ibv_open_device(rdma_device *d) { return (void)d, &context; }
int ibv_close_device(rdma_context *c) { return (void)c, 0; }

int ibv_query_port(rdma_context *c, uint8_t port, rdma_port_attr *a)
{
	(void)c;
	if (port != 1)
		return EINVAL;
	*a = (rdma_port_attr){.state = RDMA_PORT_ACTIVE, .active_mtu = 5, .gid_tbl_len = 1, .link_layer = RDMA_ETHERNET};
#ifdef INFINIBAND
	a->link_layer = RDMA_INFINIBAND;
	a->lid = 0x11;
#endif
	return 0;
}

int _ibv_query_gid_ex(rdma_context *c, uint32_t port, uint32_t i, rdma_gid_entry *e, uint32_t flags, size_t size)
{
	(void)c, (void)port, (void)i, (void)flags, (void)size;
#ifdef INFINIBAND
	*e = (rdma_gid_entry){.gid = {0xfe, 0x80, [15] = 7}};
	return 0;
#endif
	*e = (rdma_gid_entry){.gid = {[10] = 0xff, 0xff, 127, 0, 0, 1}, .gid_type = RDMA_ROCE_V2, .ndev_ifindex = 1};
	return 0;
}

rdma_pd *ibv_alloc_pd(rdma_context *c) { return (void)c, &pd; }
int ibv_dealloc_pd(rdma_pd *p) { return (void)p, locked ? EBUSY : 0; } // as with regions left

static rdma_mr *region(uint64_t at, size_t n)
{
	const char *limit = getenv("FAKE_MEMLOCK");
	if (limit && locked + n > strtoul(limit, NULL, 10)) {
		errno = ENOMEM;
		return NULL;
	}
	locked += n;
	rdma_mr *mr = calloc(1, sizeof *mr);
	*mr = (rdma_mr){&context, &pd, (void *)(uintptr_t)at, n, 0, 1, 2};
	return mr;
}

rdma_mr *ibv_reg_mr(rdma_pd *p, void *at, size_t n, int access) { return (void)p, (void)access,
	region((uintptr_t)at, n); }

#ifndef OLD
int ibv_is_fork_initialized(void) { return getenv("FAKE_FORK_UNSAFE") ? 0 : 2; }
#endif

int ibv_dereg_mr(rdma_mr *mr)
{
	locked -= mr->length;
	free(mr);
	return 0;
}

// Queue pairs. The arguments of each are written, line by line, to the file FAKE_TOLD.
static void tell(const char *format, ...)
{
	const char *path = getenv("FAKE_TOLD");
	FILE *f = path ? fopen(path, "a") : NULL;
	if (!f)
		return;
	va_list args;
	va_start(args, format);
	vfprintf(f, format, args);
	va_end(args);
	fclose(f);
}

rdma_channel *ibv_create_comp_channel(rdma_context *c)
{
	rdma_channel *channel = calloc(1, sizeof *channel);
	*channel = (rdma_channel){c, open("/dev/null", O_RDONLY | O_CLOEXEC), 0};
	return channel;
}
int ibv_destroy_comp_channel(rdma_channel *c)
{
	close(c->fd);
	free(c);
	return 0;
}
rdma_cq *ibv_create_cq(rdma_context *c, int n, void *user, rdma_channel *channel, int vector)
{
	(void)n, (void)user, (void)vector;
	rdma_cq *cq = calloc(1, sizeof *cq);
	*cq = (rdma_cq){.context = c, .channel = channel};
	return cq;
}
int ibv_destroy_cq(rdma_cq *cq) { return free(cq), 0; }
rdma_qp *ibv_create_qp(rdma_pd *p, rdma_qp_init *init)
{
	(void)init;
	rdma_qp *qp = calloc(1, sizeof *qp);
	*qp = (rdma_qp){.context = p->context, .pd = p, .qp_num = 17};
	return qp;
}
int ibv_modify_qp(rdma_qp *qp, rdma_qp_attr *a, int mask)
{
	(void)qp;
	if (a->qp_state == RDMA_INIT)
		tell("queue pair: port %d, P_Key %d, Q_Key %x\n", a->port_num, a->pkey_index, mask & RDMA_SET_QKEY ? a->qkey : 0);
	if (mask & RDMA_SET_PATH)
		tell("connected: LID %x, %s\n", a->ah_attr.dlid, a->ah_attr.is_global ? "with a GRH" : "without a GRH");
	return 0;
}
int ibv_destroy_qp(rdma_qp *qp) { return free(qp), 0; }
rdma_ah *ibv_create_ah(rdma_pd *p, rdma_ah_attr *a)
{
	tell("path: GID %02x..%02x, LID %x, SL %d, rate %d, hops %d, port %d\n", a->grh.dgid[0], a->grh.dgid[15], a->dlid,
		a->sl, a->static_rate,
	     a->grh.hop_limit, a->port_num);
	return (rdma_ah *)p;
}
int ibv_destroy_ah(rdma_ah *ah) { return (void)ah, 0; }
int ibv_attach_mcast(rdma_qp *qp, const uint8_t *gid, uint16_t lid)
{
	(void)qp;
	tell("attached: GID %02x..%02x, LID %x\n", gid[0], gid[15], lid);
	return 0;
}
int ibv_detach_mcast(rdma_qp *qp, const uint8_t *gid, uint16_t lid)
{
	(void)qp;
	tell("detached: GID %02x..%02x, LID %x\n", gid[0], gid[15], lid);
	return 0;
}

// Functions that are looked up and not called.
#define UNUSED(name) \
	void name(void) { abort(); }
UNUSED(ibv_get_cq_event)
UNUSED(ibv_ack_cq_events)
UNUSED(ibv_wc_status_str)
