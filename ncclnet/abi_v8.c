/* Net and CollNet v8: NCCL 2.20 to 2.23. Sizes of messages, counts and parts have 32 bits. */
#include "plugin.h"

nccl_result net_listen_v8(int dev, void *handle, void **listen_comm)
{
	return net_listen(NULL, dev, handle, listen_comm);
}

nccl_result net_connect_v8(int dev, void *handle, void **send_comm, struct device_handle **device)
{
	return net_connect(NULL, dev, handle, send_comm, device);
}

static nccl_result net_isend_v8(void *send_comm, void *data, int size, int tag, void *mhandle, void **request)
{
	if (size < 0)
		return plugin_refuse(NCCL_INVALID_ARGUMENT, "isend: a size of %d bytes is not allowed", size);
	return net_isend(send_comm, data, (size_t)size, tag, mhandle, NULL, request);
}

static nccl_result net_irecv_v8(void *recv_comm, int n, void **data, int *sizes, int *tags, void **mhandles,
	void **request)
{
	size_t size;

	if (sizes == NULL || n != 1)
		return net_irecv(recv_comm, n, data, NULL, tags, mhandles, NULL, request);
	if (sizes[0] < 0)
		return plugin_refuse(NCCL_INVALID_ARGUMENT, "irecv: a size of %d bytes is not allowed", sizes[0]);
	size = (size_t)sizes[0];
	return net_irecv(recv_comm, n, data, &size, tags, mhandles, NULL, request);
}

nccl_result coll_listen_v8(int dev, void *handle, void **listen_comm)
{
	return coll_listen(NULL, dev, handle, listen_comm);
}

static nccl_result coll_iallreduce_v8(void *coll_comm, void *send, void *recv, int count, int dtype, int op,
	void *send_mhandle, void *recv_mhandle, void **request)
{
	if (count < 0)
		return plugin_refuse(NCCL_INVALID_ARGUMENT, "iallreduce: %d elements are not allowed", count);
	return coll_iallreduce(coll_comm, send, recv, (size_t)count, dtype, op, send_mhandle, recv_mhandle, request);
}

static nccl_result coll_iallgather_v8(void *coll_comm, void *send, int parts, struct sge_v8 *recv_parts,
	size_t bytes_per_rank,
	size_t window_offset, size_t window_bytes, void *send_mhandle, void **request)
{
	struct sge_v9 part;

	if (parts == 1 && recv_parts != NULL)
		part = (struct sge_v9){ recv_parts->mhandle, recv_parts->address, recv_parts->size };
	return coll_iallgather(coll_comm, send, parts, parts == 1 && recv_parts != NULL ? &part : NULL, bytes_per_rank,
		window_offset, window_bytes, send_mhandle, request);
}

static nccl_result coll_ireducescatter_v8(void *coll_comm, int parts, struct sge_v8 *send_parts, void *recv,
	size_t bytes_per_rank,
	size_t window_offset, size_t window_bytes, int dtype, int op, void *recv_mhandle, void **request)
{
	struct sge_v9 part;

	if (parts == 1 && send_parts != NULL)
		part = (struct sge_v9){ send_parts->mhandle, send_parts->address, send_parts->size };
	return coll_ireducescatter(coll_comm, parts, parts == 1 && send_parts != NULL ? &part : NULL, recv, bytes_per_rank,
		window_offset, window_bytes, dtype, op, recv_mhandle, request);
}

EXPORT const struct net_v8 ncclNetPlugin_v8 = {
	NET_ALIKE, .init = plugin_init, .getProperties = properties_v8, .listen = net_listen_v8,
	.connect = net_connect_v8, .isend = net_isend_v8, .irecv = net_irecv_v8,
};

EXPORT const struct coll_v8 ncclCollNetPlugin_v8 = {
	COLL_ALIKE, .init = plugin_init, .getProperties = coll_properties_v8, .listen = coll_listen_v8,
	.iallreduce = coll_iallreduce_v8, .iallgather = coll_iallgather_v8, .ireducescatter = coll_ireducescatter_v8,
};
