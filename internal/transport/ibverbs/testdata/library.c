// A libibverbs for tests without devices: one device, on the interface 1 (lo) at 127.0.0.1, that registers memory up to
// FAKE_MEMLOCK bytes (unsigned; none: any), and DMA-BUFs unless OLD is defined. It sends nothing.
#include "../abi.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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
	*a = (rdma_port_attr){.state = RDMA_PORT_ACTIVE, .active_mtu = 5, .gid_tbl_len = 1};
	return 0;
}

int _ibv_query_gid_ex(rdma_context *c, uint32_t port, uint32_t i, rdma_gid_entry *e, uint32_t flags, size_t size)
{
	(void)c, (void)port, (void)i, (void)flags, (void)size;
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

rdma_mr *ibv_reg_mr(rdma_pd *p, void *at, size_t n, int access) { return (void)p, (void)access, region((uintptr_t)at, n); }

#ifndef OLD
rdma_mr *ibv_reg_dmabuf_mr(rdma_pd *p, uint64_t offset, size_t n, uint64_t at, int fd, int access)
{
	(void)p, (void)offset, (void)fd, (void)access;
	return region(at, n);
}
int ibv_is_fork_initialized(void) { return getenv("FAKE_FORK_UNSAFE") ? 0 : 2; }
#endif

int ibv_dereg_mr(rdma_mr *mr)
{
	locked -= mr->length;
	free(mr);
	return 0;
}

// What is looked up and not called.
#define UNUSED(name)                                                                                                     \
	void name(void) { abort(); }
UNUSED(ibv_create_comp_channel)
UNUSED(ibv_destroy_comp_channel)
UNUSED(ibv_create_cq)
UNUSED(ibv_destroy_cq)
UNUSED(ibv_get_cq_event)
UNUSED(ibv_ack_cq_events)
UNUSED(ibv_create_qp)
UNUSED(ibv_modify_qp)
UNUSED(ibv_destroy_qp)
UNUSED(ibv_create_ah)
UNUSED(ibv_destroy_ah)
UNUSED(ibv_attach_mcast)
UNUSED(ibv_detach_mcast)
UNUSED(ibv_wc_status_str)
