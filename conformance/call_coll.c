/* The calls of CollNet, each with its log. */
#include "board.h"
#include "library.h"

int coll_init(struct coll *c, uint64_t id, void **ctx)
{
	void *made = NULL;
	int result = CALL(c->calls.init(&made, id, plugin_log), "coll init(id %lu)", id, 0, 0);

	c->version->read(&c->calls, c->table); /* as in net_init */
	c->ctx = made;
	if (ctx)
		*ctx = made;
	return result;
}

int coll_finalize(struct coll *c, void *ctx)
{
	if (!c->calls.contexts)
		return ABI_SUCCESS;
	return CALL(c->calls.finalize(ctx), "coll finalize(ctx 0x%lx)", ctx, 0, 0);
}

int coll_devices(struct coll *c, int *ndev)
{
	return CALL(c->calls.devices(ndev), "coll devices()", 0, 0, 0);
}

int coll_properties(struct coll *c, int dev, struct abi_props *props)
{
	return CALL(c->calls.get_properties(dev, props), "coll getProperties(dev %ld)", dev, 0, 0);
}

int coll_listen(struct coll *c, void *ctx, int dev, void *handle, void **comm)
{
	return CALL(c->calls.listen(ctx, dev, handle, comm), "coll listen(dev %ld)", dev, 0, 0);
}

int coll_connect(struct coll *c, void **handles, int nranks, int rank, void *comm, void **made)
{
	return CALL(c->calls.connect(handles, nranks, rank, comm, made),
		"coll connect(nranks %ld, rank %ld)", nranks, rank, 0);
}

int coll_reduce_support(struct coll *c, int type, int op, int *supported)
{
	return CALL(c->calls.reduce_support(type, op, supported), "coll reduceSupport(type %ld, op %ld)", type, op, 0);
}

int coll_reg_mr(struct coll *c, void *comm, void *data, size_t size, int type, void **mhandle)
{
	return CALL(c->calls.reg_mr(comm, data, size, type, mhandle),
		"coll regMr(comm 0x%lx, 0x%lx, %lu bytes)", comm, data, size);
}

int coll_dereg_mr(struct coll *c, void *comm, void *mhandle)
{
	return CALL(c->calls.dereg_mr(comm, mhandle), "coll deregMr(comm 0x%lx, mhandle 0x%lx)", comm, mhandle, 0);
}

int coll_iallreduce(struct coll *c, void *comm, void *send, void *recv, size_t count, int type, int op,
	void *send_mhandle, void *recv_mhandle, void **request)
{
	return CALL(c->calls.iallreduce(comm, send, recv, count, type, op, send_mhandle, recv_mhandle, request),
		"coll iallreduce(count %lu, type %ld, op %ld)", count, type, op);
}

int coll_iallgather(struct coll *c, void *comm, void *send, int n, struct abi_part *parts,
	size_t bytes_per_rank, size_t window_offset, size_t window_bytes, void *send_mhandle, void **request)
{
	return CALL(c->calls.iallgather(comm, send, n, parts, bytes_per_rank, window_offset, window_bytes,
			send_mhandle, request),
		"coll iallgather(bytesPerRank %lu, window at %lu, %lu bytes)",
		bytes_per_rank, window_offset, window_bytes);
}

int coll_ireduce_scatter(struct coll *c, void *comm, int n, struct abi_part *parts, void *recv,
	size_t bytes_per_rank, size_t window_offset, size_t window_bytes, int type, int op,
	void *recv_mhandle, void **request)
{
	return CALL(c->calls.ireduce_scatter(comm, n, parts, recv, bytes_per_rank, window_offset, window_bytes,
			type, op, recv_mhandle, request),
		"coll ireducescatter(bytesPerRank %lu, window at %lu, %lu bytes)",
		bytes_per_rank, window_offset, window_bytes);
}

int coll_iflush(struct coll *c, void *comm, void *data, int size, void *mhandle, void **request)
{
	return CALL(c->calls.iflush(comm, data, size, mhandle, request), "coll iflush(%ld bytes)", size, 0, 0);
}

int coll_test(struct coll *c, void *request, int *done, int *size)
{
	return CALL(c->calls.test(request, done, size), "coll test(request 0x%lx)", request, 0, 0);
}

int coll_close(struct coll *c, void *comm)
{
	return CALL(c->calls.close_coll(comm), "coll closeColl(comm 0x%lx)", comm, 0, 0);
}

int coll_close_listen(struct coll *c, void *comm)
{
	return CALL(c->calls.close_listen(comm), "coll closeListen(listen 0x%lx)", comm, 0, 0);
}
