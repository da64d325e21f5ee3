/* The net interface in its newest shape over each older table, translated as
 * NCCL 2.30.7 translates it (src/plugin/net/net_v8.cc to net_v11.cc). */
#include <limits.h>
#include <string.h>

#include "abi_adapt.h"
#include "board.h"

#define V8 ((const struct abi_net_v8 *)n->table)
#define V9 ((const struct abi_net_v9 *)n->table)
#define V10 ((const struct abi_net_v10 *)n->table)
#define V11 ((const struct abi_net_v11 *)n->table)
#define V12 ((const struct abi_net_v12 *)n->table)

/* What NCCL passes where no traffic class was chosen. */
static struct abi_config config = { .traffic_class = -1 };

static int profile_nothing(void **event, int type, void *parent, int64_t plugin, void *data)
{
	(void)event, (void)type, (void)parent, (void)plugin, (void)data;
	return ABI_SUCCESS;
}

void props_from_v8(struct abi_props_v12 *to, const struct abi_props_v8 *p, int dev)
{
	*to = (struct abi_props_v12){
		p->name, p->pci_path, p->guid, p->ptr_support, p->reg_is_global, 0, p->speed,
		p->port, p->latency, p->max_comms, p->max_recvs, p->device_type, p->device_version,
		{ 1, { dev } }, (size_t)1 << 30, (size_t)1 << 29, 1, ABI_ID_UNDEFINED, ABI_ID_UNDEFINED,
	};
}

void props_from_v9(struct abi_props_v12 *to, const struct abi_props_v9 *p)
{
	*to = (struct abi_props_v12){
		p->name, p->pci_path, p->guid, p->ptr_support, p->reg_is_global, p->force_flush, p->speed,
		p->port, p->latency, p->max_comms, p->max_recvs, p->device_type, p->device_version,
		{ p->vdevice.ndevs, { 0 } }, p->max_p2p_bytes, p->max_coll_bytes, 1,
		ABI_ID_UNDEFINED, ABI_ID_UNDEFINED,
	};
	memcpy(to->vdevice.devs, p->vdevice.devs, sizeof(p->vdevice.devs));
}

void props_from_v11(struct abi_props_v12 *to, const struct abi_props_v11 *p)
{
	struct abi_props_v9 common;

	memcpy(&common, p, sizeof(common));
	props_from_v9(to, &common);
	to->max_multi_request_size = p->max_multi_request_size;
}

static int init(struct net *n, uint64_t id, void **ctx)
{
	switch (n->abi) {
	case 8: return V8->init(plugin_log);
	case 9: return V9->init(plugin_log);
	case 10: return V10->init(plugin_log, profile_nothing);
	case 11: return V11->init(ctx, id, &config, plugin_log, profile_nothing);
	default: return V12->init(ctx, id, &config, plugin_log, profile_nothing);
	}
}

int net_init(struct net *n, uint64_t id, void **ctx)
{
	void *made = NULL;
	int result = CALL(init(n, id, &made), "net init(id %lu)", id, 0, 0);

	n->ctx = made;
	if (ctx)
		*ctx = made;
	return result;
}

int net_finalize(struct net *n, void *ctx)
{
	if (n->abi < 11)
		return ABI_SUCCESS;
	return CALL(n->abi == 11 ? V11->finalize(ctx) : V12->finalize(ctx), "net finalize(ctx 0x%lx)", ctx, 0, 0);
}

int net_devices(struct net *n, int *ndev)
{
	return CALL(V8->devices(ndev), "net devices()", 0, 0, 0);
}

static int properties(struct net *n, int dev, struct abi_props_v12 *props)
{
	struct abi_props_v8 v8;
	struct abi_props_v9 v9;
	struct abi_props_v11 v11;
	int result;

	memset(&v8, PROPS_POISON, sizeof(v8));
	memset(&v9, PROPS_POISON, sizeof(v9));
	memset(&v11, PROPS_POISON, sizeof(v11));
	memset(props, PROPS_POISON, sizeof(*props));
	switch (n->abi) {
	case 8:
		result = V8->get_properties(dev, &v8);
		props_from_v8(props, &v8, dev);
		return result;
	case 9:
	case 10:
		result = V9->get_properties(dev, &v9);
		props_from_v9(props, &v9);
		return result;
	case 11:
		result = V11->get_properties(dev, &v11);
		props_from_v11(props, &v11);
		return result;
	default:
		return V12->get_properties(dev, props);
	}
}

int net_properties(struct net *n, int dev, struct abi_props_v12 *props)
{
	return CALL(properties(n, dev, props), "net getProperties(dev %ld)", dev, 0, 0);
}

static int listen(struct net *n, void *ctx, int dev, void *handle, void **comm)
{
	if (n->abi < 11)
		return V8->listen(dev, handle, comm);
	return V11->listen(ctx, dev, handle, comm);
}

int net_listen(struct net *n, void *ctx, int dev, void *handle, void **comm)
{
	return CALL(listen(n, ctx, dev, handle, comm), "net listen(dev %ld)", dev, 0, 0);
}

int net_set_attr(struct net *n, void *ctx, struct abi_attr *attr)
{
	int (*set_attr)(void *, struct abi_attr *) = NULL;

	if (n->abi == 11)
		set_attr = V11->set_attr;
	if (n->abi >= 12)
		set_attr = V12->set_attr;
	return set_attr ? CALL(set_attr(ctx, attr), "net setNetAttr(ctx 0x%lx)", ctx, 0, 0) : ABI_SUCCESS;
}

/* The values that NCCL gives ahead of each poll of a connect or accept. */
static int set_attr_any(struct net *n, void *ctx)
{
	struct abi_attr any = {
		.send = { 1, 1, 1, 1 }, .recv = { 1, 1, 1, 1 }, .op = ~0u, .algo = ~0u, .proto = ~0u,
	};

	return net_set_attr(n, ctx, &any);
}

static int connect(struct net *n, void *ctx, int dev, void *handle, void **comm)
{
	struct abi_device *device = NULL;

	switch (n->abi) {
	case 8: return V8->connect(dev, handle, comm, &device);
	case 9: return V9->connect(dev, handle, comm, &device);
	case 10: return V10->connect(dev, &config, handle, comm, &device);
	default: return V11->connect(ctx, dev, handle, comm, &device);
	}
}

int net_connect(struct net *n, void *ctx, int dev, void *handle, void **comm)
{
	int result = set_attr_any(n, ctx);

	if (result != ABI_SUCCESS)
		return result;
	return CALL(connect(n, ctx, dev, handle, comm), "net connect(dev %ld, handle 0x%lx)", dev, handle, 0);
}

int net_accept(struct net *n, void *ctx, void *comm, void **recv)
{
	struct abi_device *device = NULL;
	int result = set_attr_any(n, ctx);

	if (result != ABI_SUCCESS)
		return result;
	return CALL(V8->accept(comm, recv, &device), "net accept(listen 0x%lx)", comm, 0, 0);
}

int net_reg_mr(struct net *n, void *comm, void *data, size_t size, int type, void **mhandle)
{
	return CALL(V8->reg_mr(comm, data, size, type, mhandle),
		"net regMr(comm 0x%lx, 0x%lx, %lu bytes)", comm, data, size);
}

int net_dereg_mr(struct net *n, void *comm, void *mhandle)
{
	return CALL(V8->dereg_mr(comm, mhandle), "net deregMr(comm 0x%lx, mhandle 0x%lx)", comm, mhandle, 0);
}

static int isend(struct net *n, void *comm, void *data, size_t size, int tag, void *mhandle, void **request)
{
	switch (n->abi) {
	case 8:
		if (size > (size_t)1 << 30)
			return ABI_INTERNAL_ERROR;
		return V8->isend(comm, data, (int)size, tag, mhandle, request);
	case 9: return V9->isend(comm, data, size, tag, mhandle, request);
	case 10: return V10->isend(comm, data, size, tag, mhandle, NULL, request);
	default: return V11->isend(comm, data, size, tag, mhandle, NULL, request);
	}
}

int net_isend(struct net *n, void *comm, void *data, size_t size, int tag, void *mhandle, void **request)
{
	return CALL(isend(n, comm, data, size, tag, mhandle, request),
		"net isend(comm 0x%lx, %lu bytes, tag %ld)", comm, size, tag);
}

static int irecv(struct net *n, void *comm, int count, void **data, size_t *sizes, int *tags,
	void **mhandles, void **request)
{
	void *phandles[8] = { NULL };
	int small[8];

	switch (n->abi) {
	case 8:
		if (*request == ABI_OPTIONAL_COMPLETION)
			*request = NULL;
		for (int i = 0; i < count && i < 8; i++) {
			if (sizes[i] > (size_t)1 << 30)
				return ABI_INTERNAL_ERROR;
			small[i] = (int)sizes[i];
		}
		return V8->irecv(comm, count, data, small, tags, mhandles, request);
	case 9: return V9->irecv(comm, count, data, sizes, tags, mhandles, request);
	case 10: return V10->irecv(comm, count, data, sizes, tags, mhandles, phandles, request);
	default: return V11->irecv(comm, count, data, sizes, tags, mhandles, phandles, request);
	}
}

int net_irecv(struct net *n, void *comm, int count, void **data, size_t *sizes, int *tags,
	void **mhandles, void **request)
{
	return CALL(irecv(n, comm, count, data, sizes, tags, mhandles, request),
		"net irecv(comm 0x%lx, %lu bytes, tag %ld)", comm, sizes[0], tags[0]);
}

int net_iflush(struct net *n, void *comm, int count, void **data, int *sizes, void **mhandles, void **request)
{
	return CALL(V8->iflush(comm, count, data, sizes, mhandles, request),
		"net iflush(comm 0x%lx, n %ld)", comm, count, 0);
}

int net_test(struct net *n, void *request, int *done, int *sizes)
{
	return CALL(V8->test(request, done, sizes), "net test(request 0x%lx)", request, 0, 0);
}

int net_consumed(struct net *n, void *comm, int count, void *request)
{
	if (!V8->irecv_consumed)
		return ABI_SUCCESS;
	return CALL(V8->irecv_consumed(comm, count, request),
		"net irecvConsumed(comm 0x%lx, n %ld, request 0x%lx)", comm, count, request);
}

int net_close_send(struct net *n, void *comm)
{
	return CALL(V8->close_send(comm), "net closeSend(comm 0x%lx)", comm, 0, 0);
}

int net_close_recv(struct net *n, void *comm)
{
	return CALL(V8->close_recv(comm), "net closeRecv(comm 0x%lx)", comm, 0, 0);
}

int net_close_listen(struct net *n, void *comm)
{
	return CALL(V8->close_listen(comm), "net closeListen(listen 0x%lx)", comm, 0, 0);
}
