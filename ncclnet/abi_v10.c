/* Net and CollNet v10: NCCL 2.26 and 2.27. No contexts; connect brings the configuration. CollNet is as in v9. */
#include "plugin.h"

static nccl_result net_init_v10(nccl_logger log, nccl_profiler profiler)
{
	(void)profiler;
	return plugin_init(log);
}

static nccl_result net_listen_v10(int dev, void *handle, void **listen_comm)
{
	return net_listen(NULL, dev, handle, listen_comm);
}

static nccl_result net_connect_v10(int dev, struct comm_config *config, void *handle, void **send_comm, struct device_handle **device)
{
	(void)config;
	return net_connect(NULL, dev, handle, send_comm, device);
}

static nccl_result coll_listen_v10(int dev, void *handle, void **listen_comm)
{
	return coll_listen(NULL, dev, handle, listen_comm);
}

EXPORT const struct net_v10 ncclNetPlugin_v10 = {
	.name = PLUGIN_NAME, .init = net_init_v10, .devices = net_devices, .getProperties = properties_v9,
	.listen = net_listen_v10, .connect = net_connect_v10, .accept = net_accept,
	.regMr = memory_register, .regMrDmaBuf = memory_register_dmabuf, .deregMr = memory_deregister,
	.isend = net_isend, .irecv = net_irecv, .iflush = net_iflush, .test = net_test,
	.closeSend = net_close, .closeRecv = net_close, .closeListen = net_close_listen,
};

#define COLL_V9 { \
	.name = PLUGIN_NAME, .init = plugin_init, .devices = coll_devices, .getProperties = properties_v9, \
	.listen = coll_listen_v10, .connect = coll_connect, .reduceSupport = coll_reduce_support, \
	.regMr = coll_register, .regMrDmaBuf = coll_register_dmabuf, .deregMr = coll_deregister, \
	.iallreduce = coll_iallreduce, .iallgather = coll_iallgather, .ireducescatter = coll_ireducescatter, \
	.iflush = coll_iflush, .test = coll_test, .closeColl = coll_close, .closeListen = coll_close_listen, \
}
EXPORT const struct coll_v9 ncclCollNetPlugin_v10 = COLL_V9;
EXPORT const struct coll_v9 ncclCollNetPlugin_v9 = COLL_V9;
