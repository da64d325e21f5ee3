/* Net v9: NCCL 2.24 and 2.25. No handles of a profiler. Its CollNet is that of v10. */
#include "plugin.h"

static nccl_result net_listen_v9(int dev, void *handle, void **listen_comm)
{
	return net_listen(NULL, dev, handle, listen_comm);
}

static nccl_result net_connect_v9(int dev, void *handle, void **send_comm, struct device_handle **device)
{
	return net_connect(NULL, dev, handle, send_comm, device);
}

static nccl_result net_isend_v9(void *send_comm, void *data, size_t size, int tag, void *mhandle, void **request)
{
	return net_isend(send_comm, data, size, tag, mhandle, NULL, request);
}

static nccl_result net_irecv_v9(void *recv_comm, int n, void **data, size_t *sizes, int *tags, void **mhandles, void **request)
{
	return net_irecv(recv_comm, n, data, sizes, tags, mhandles, NULL, request);
}

EXPORT const struct net_v9 ncclNetPlugin_v9 = {
	.name = PLUGIN_NAME, .init = plugin_init, .devices = net_devices, .getProperties = properties_v9,
	.listen = net_listen_v9, .connect = net_connect_v9, .accept = net_accept,
	.regMr = memory_register, .regMrDmaBuf = memory_register_dmabuf, .deregMr = memory_deregister,
	.isend = net_isend_v9, .irecv = net_irecv_v9, .iflush = net_iflush, .test = net_test,
	.closeSend = net_close, .closeRecv = net_close, .closeListen = net_close_listen,
};
