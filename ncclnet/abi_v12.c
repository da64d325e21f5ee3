/* Net and CollNet v12: NCCL 2.30. The newest: all others are made like it. */
#include "plugin.h"

static nccl_result net_init_v12(void **ctx, uint64_t comm_id, struct comm_config *config, nccl_logger log, nccl_profiler profiler)
{
	(void)config, (void)profiler;
	return context_init(ctx, comm_id, log);
}

EXPORT const struct net_v12 ncclNetPlugin_v12 = {
	.name = PLUGIN_NAME, .init = net_init_v12, .devices = net_devices, .getProperties = properties_v12,
	.listen = net_listen, .connect = net_connect, .accept = net_accept,
	.regMr = memory_register, .regMrDmaBuf = memory_register_dmabuf, .deregMr = memory_deregister,
	.isend = net_isend, .irecv = net_irecv, .iflush = net_iflush, .test = net_test,
	.closeSend = net_close, .closeRecv = net_close, .closeListen = net_close_listen,
	.finalize = context_finalize, .setNetAttr = net_attr,
};

EXPORT const struct coll_v12 ncclCollNetPlugin_v12 = {
	.name = PLUGIN_NAME, .init = context_init, .devices = coll_devices, .getProperties = properties_v12,
	.listen = coll_listen, .connect = coll_connect, .reduceSupport = coll_reduce_support,
	.regMr = coll_register, .regMrDmaBuf = coll_register_dmabuf, .deregMr = coll_deregister,
	.iallreduce = coll_iallreduce, .iallgather = coll_iallgather, .ireducescatter = coll_ireducescatter,
	.iflush = coll_iflush, .test = coll_test, .closeColl = coll_close, .closeListen = coll_close_listen,
	.finalize = context_finalize,
};
