/* Net v9: NCCL 2.24 and 2.25. No handles of a profiler. It has the CollNet of v10. */
#include "plugin.h"

static nccl_result net_isend_v9(void *send_comm, void *data, size_t size, int tag, void *mhandle, void **request)
{
	return net_isend(send_comm, data, size, tag, mhandle, NULL, request);
}

static nccl_result net_irecv_v9(void *recv_comm, int n, void **data, size_t *sizes, int *tags, void **mhandles,
	void **request)
{
	return net_irecv(recv_comm, n, data, sizes, tags, mhandles, NULL, request);
}

EXPORT const struct net_v9 ncclNetPlugin_v9 = {
	NET_ALIKE, .init = plugin_init, .getProperties = properties_v9, .listen = net_listen_v8,
	.connect = net_connect_v8, .isend = net_isend_v9, .irecv = net_irecv_v9,
};
