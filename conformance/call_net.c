/* The calls of the net interface, each with its log. */
#include "board.h"
#include "library.h"

/* What NCCL passes where no traffic class was chosen. */
static struct abi_config config = { .traffic_class = -1 };

static int profile_nothing(void **event, int type, void *parent, int64_t plugin, void *data)
{
	(void)event, (void)type, (void)parent, (void)plugin, (void)data;
	return ABI_SUCCESS;
}

int net_init(struct net *n, uint64_t id, void **ctx)
{
	void *made = NULL;
	int result = CALL(n->calls.init(&made, id, &config, plugin_log, n->profile ? n->profile : profile_nothing),
		"net init(id %lu)", id, 0, 0);

	n->version->read(&n->calls, n->table); /* some plugins fill in their table here */
	n->ctx = made;
	if (ctx)
		*ctx = made;
	return result;
}

int net_finalize(struct net *n, void *ctx)
{
	if (!n->calls.contexts)
		return ABI_SUCCESS;
	return CALL(n->calls.finalize(ctx), "net finalize(ctx 0x%lx)", ctx, 0, 0);
}

int net_devices(struct net *n, int *ndev)
{
	return CALL(n->calls.devices(ndev), "net devices()", 0, 0, 0);
}

int net_properties(struct net *n, int dev, struct abi_props *props)
{
	return CALL(n->calls.get_properties(dev, props), "net getProperties(dev %ld)", dev, 0, 0);
}

int net_listen(struct net *n, void *ctx, int dev, void *handle, void **comm)
{
	return CALL(n->calls.listen(ctx, dev, handle, comm), "net listen(dev %ld)", dev, 0, 0);
}

int net_set_attr(struct net *n, void *ctx, struct abi_attr *attr)
{
	if (!n->calls.set_attr)
		return ABI_SUCCESS;
	return CALL(n->calls.set_attr(ctx, attr), "net setNetAttr(ctx 0x%lx)", ctx, 0, 0);
}

/* The values that NCCL gives ahead of each poll of a connect or accept. */
static int set_attr_any(struct net *n, void *ctx)
{
	struct abi_attr any = {
		.send = { 1, 1, 1, 1 }, .recv = { 1, 1, 1, 1 }, .op = ~0u, .algo = ~0u, .proto = ~0u,
	};

	return net_set_attr(n, ctx, &any);
}

int net_connect(struct net *n, void *ctx, int dev, void *handle, void **comm)
{
	struct abi_device *device = NULL;
	int result = set_attr_any(n, ctx);

	if (result != ABI_SUCCESS)
		return result;
	return CALL(n->calls.connect(ctx, dev, handle, comm, &device), "net connect(dev %ld, handle 0x%lx)",
		dev, handle, 0);
}

int net_accept(struct net *n, void *ctx, void *comm, void **recv)
{
	struct abi_device *device = NULL;
	int result = set_attr_any(n, ctx);

	if (result != ABI_SUCCESS)
		return result;
	return CALL(n->calls.accept(comm, recv, &device), "net accept(listen 0x%lx)", comm, 0, 0);
}

int net_reg_mr(struct net *n, void *comm, void *data, size_t size, int type, void **mhandle)
{
	return CALL(n->calls.reg_mr(comm, data, size, type, mhandle),
		"net regMr(comm 0x%lx, 0x%lx, %lu bytes)", comm, data, size);
}

int net_dereg_mr(struct net *n, void *comm, void *mhandle)
{
	return CALL(n->calls.dereg_mr(comm, mhandle), "net deregMr(comm 0x%lx, mhandle 0x%lx)", comm, mhandle, 0);
}

int net_isend(struct net *n, void *comm, void *data, size_t size, int tag, void *mhandle, void *phandle, void **request)
{
	return CALL(n->calls.isend(comm, data, size, tag, mhandle, phandle, request),
		"net isend(comm 0x%lx, %lu bytes, tag %ld)", comm, size, tag);
}

int net_irecv(struct net *n, void *comm, int count, void **data, size_t *sizes, int *tags,
	void **mhandles, void **phandles, void **request)
{
	return CALL(n->calls.irecv(comm, count, data, sizes, tags, mhandles, phandles, request),
		"net irecv(comm 0x%lx, %lu bytes, tag %ld)", comm, sizes[0], tags[0]);
}

int net_iflush(struct net *n, void *comm, int count, void **data, int *sizes, void **mhandles, void **request)
{
	return CALL(n->calls.iflush(comm, count, data, sizes, mhandles, request),
		"net iflush(comm 0x%lx, n %ld)", comm, count, 0);
}

int net_test(struct net *n, void *request, int *done, int *sizes)
{
	return CALL(n->calls.test(request, done, sizes), "net test(request 0x%lx)", request, 0, 0);
}

int net_consumed(struct net *n, void *comm, int count, void *request)
{
	if (!n->calls.irecv_consumed)
		return ABI_SUCCESS;
	return CALL(n->calls.irecv_consumed(comm, count, request),
		"net irecvConsumed(comm 0x%lx, n %ld, request 0x%lx)", comm, count, request);
}

int net_close_send(struct net *n, void *comm)
{
	return CALL(n->calls.close_send(comm), "net closeSend(comm 0x%lx)", comm, 0, 0);
}

int net_close_recv(struct net *n, void *comm)
{
	return CALL(n->calls.close_recv(comm), "net closeRecv(comm 0x%lx)", comm, 0, 0);
}

int net_close_listen(struct net *n, void *comm)
{
	return CALL(n->calls.close_listen(comm), "net closeListen(listen 0x%lx)", comm, 0, 0);
}
