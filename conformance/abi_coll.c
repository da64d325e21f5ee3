/* CollNet in its newest shape over each older table, as in abi_net.c. */
#include <string.h>

#include "abi_adapt.h"
#include "board.h"

#define V8 ((const struct abi_coll_v8 *)c->table)
#define V9 ((const struct abi_coll_v9 *)c->table)
#define V11 ((const struct abi_coll_v11 *)c->table)
#define V12 ((const struct abi_coll_v12 *)c->table)

int coll_init(struct coll *c, uint64_t id, void **ctx)
{
	void *made = NULL;
	int result = c->abi < 11 ? CALL(V8->init(plugin_log), "coll init()", 0, 0, 0) :
		CALL(V11->init(&made, id, plugin_log), "coll init(id %lu)", id, 0, 0);

	c->ctx = made;
	if (ctx)
		*ctx = made;
	return result;
}

int coll_finalize(struct coll *c, void *ctx)
{
	if (c->abi < 11)
		return ABI_SUCCESS;
	return CALL(c->abi == 11 ? V11->finalize(ctx) : V12->finalize(ctx), "coll finalize(ctx 0x%lx)", ctx, 0, 0);
}

int coll_devices(struct coll *c, int *ndev)
{
	return CALL(V8->devices(ndev), "coll devices()", 0, 0, 0);
}

static int properties(struct coll *c, int dev, struct abi_props_v12 *props)
{
	struct abi_props_v8 v8;
	struct abi_props_v9 v9;
	struct abi_props_v11 v11;
	int result;

	memset(&v8, PROPS_POISON, sizeof(v8));
	memset(&v9, PROPS_POISON, sizeof(v9));
	memset(&v11, PROPS_POISON, sizeof(v11));
	memset(props, PROPS_POISON, sizeof(*props));
	switch (c->abi) {
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

int coll_properties(struct coll *c, int dev, struct abi_props_v12 *props)
{
	return CALL(properties(c, dev, props), "coll getProperties(dev %ld)", dev, 0, 0);
}

int coll_listen(struct coll *c, void *ctx, int dev, void *handle, void **comm)
{
	return CALL(c->abi < 11 ? V8->listen(dev, handle, comm) : V11->listen(ctx, dev, handle, comm),
		"coll listen(dev %ld)", dev, 0, 0);
}

int coll_connect(struct coll *c, void **handles, int nranks, int rank, void *comm, void **made)
{
	return CALL(V8->connect(handles, nranks, rank, comm, made),
		"coll connect(nranks %ld, rank %ld)", nranks, rank, 0);
}

int coll_reduce_support(struct coll *c, int type, int op, int *supported)
{
	return CALL(V8->reduce_support(type, op, supported), "coll reduceSupport(type %ld, op %ld)", type, op, 0);
}

int coll_reg_mr(struct coll *c, void *comm, void *data, size_t size, int type, void **mhandle)
{
	return CALL(V8->reg_mr(comm, data, size, type, mhandle),
		"coll regMr(comm 0x%lx, 0x%lx, %lu bytes)", comm, data, size);
}

int coll_dereg_mr(struct coll *c, void *comm, void *mhandle)
{
	return CALL(V8->dereg_mr(comm, mhandle), "coll deregMr(comm 0x%lx, mhandle 0x%lx)", comm, mhandle, 0);
}

static int iallreduce(struct coll *c, void *comm, void *send, void *recv, size_t count, int type, int op,
	void *send_mhandle, void *recv_mhandle, void **request)
{
	if (c->abi > 8)
		return V9->iallreduce(comm, send, recv, count, type, op, send_mhandle, recv_mhandle, request);
	if (count > (size_t)1 << 30)
		return ABI_INTERNAL_ERROR;
	return V8->iallreduce(comm, send, recv, (int)count, type, op, send_mhandle, recv_mhandle, request);
}

int coll_iallreduce(struct coll *c, void *comm, void *send, void *recv, size_t count, int type, int op,
	void *send_mhandle, void *recv_mhandle, void **request)
{
	return CALL(iallreduce(c, comm, send, recv, count, type, op, send_mhandle, recv_mhandle, request),
		"coll iallreduce(count %lu, type %ld, op %ld)", count, type, op);
}

/* v8 takes one part, of 32 bits. */
static int part_v8(struct abi_part_v8 *to, int n, const struct abi_part *parts)
{
	if (n != 1 || parts[0].size > (size_t)1 << 29)
		return ABI_INTERNAL_ERROR;
	*to = (struct abi_part_v8){ parts[0].mhandle, parts[0].address, (uint32_t)parts[0].size };
	return ABI_SUCCESS;
}

static int iallgather(struct coll *c, void *comm, void *send, int n, struct abi_part *parts,
	size_t bytes_per_rank, size_t window_offset, size_t window_bytes, void *send_mhandle, void **request)
{
	struct abi_part_v8 part;
	int result;

	if (c->abi > 8)
		return V9->iallgather(comm, send, n, parts, bytes_per_rank, window_offset, window_bytes,
			send_mhandle, request);
	result = part_v8(&part, n, parts);
	return result != ABI_SUCCESS ? result : V8->iallgather(comm, send, 1, &part, bytes_per_rank,
		window_offset, window_bytes, send_mhandle, request);
}

int coll_iallgather(struct coll *c, void *comm, void *send, int n, struct abi_part *parts,
	size_t bytes_per_rank, size_t window_offset, size_t window_bytes, void *send_mhandle, void **request)
{
	return CALL(iallgather(c, comm, send, n, parts, bytes_per_rank, window_offset, window_bytes,
			send_mhandle, request),
		"coll iallgather(bytesPerRank %lu, window at %lu, %lu bytes)",
		bytes_per_rank, window_offset, window_bytes);
}

static int ireduce_scatter(struct coll *c, void *comm, int n, struct abi_part *parts, void *recv,
	size_t bytes_per_rank, size_t window_offset, size_t window_bytes, int type, int op,
	void *recv_mhandle, void **request)
{
	struct abi_part_v8 part;
	int result;

	if (c->abi > 8)
		return V9->ireduce_scatter(comm, n, parts, recv, bytes_per_rank, window_offset, window_bytes,
			type, op, recv_mhandle, request);
	result = part_v8(&part, n, parts);
	return result != ABI_SUCCESS ? result : V8->ireduce_scatter(comm, 1, &part, recv, bytes_per_rank,
		window_offset, window_bytes, type, op, recv_mhandle, request);
}

int coll_ireduce_scatter(struct coll *c, void *comm, int n, struct abi_part *parts, void *recv,
	size_t bytes_per_rank, size_t window_offset, size_t window_bytes, int type, int op,
	void *recv_mhandle, void **request)
{
	return CALL(ireduce_scatter(c, comm, n, parts, recv, bytes_per_rank, window_offset, window_bytes,
			type, op, recv_mhandle, request),
		"coll ireducescatter(bytesPerRank %lu, window at %lu, %lu bytes)",
		bytes_per_rank, window_offset, window_bytes);
}

int coll_iflush(struct coll *c, void *comm, void *data, int size, void *mhandle, void **request)
{
	return CALL(V8->iflush(comm, data, size, mhandle, request), "coll iflush(%ld bytes)", size, 0, 0);
}

int coll_test(struct coll *c, void *request, int *done, int *size)
{
	return CALL(V8->test(request, done, size), "coll test(request 0x%lx)", request, 0, 0);
}

int coll_close(struct coll *c, void *comm)
{
	return CALL(V8->close_coll(comm), "coll closeColl(comm 0x%lx)", comm, 0, 0);
}

int coll_close_listen(struct coll *c, void *comm)
{
	return CALL(V8->close_listen(comm), "coll closeListen(listen 0x%lx)", comm, 0, 0);
}
