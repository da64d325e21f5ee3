/* Net and CollNet v10: NCCL 2.26 and 2.27. No contexts; connect brings the configuration. CollNet is as in v9. */
#include "plugin.h"

static nccl_result net_init_v10(nccl_logger log, nccl_profiler profiler)
{
	net_profiler_v10(profiler);
	return plugin_init(log);
}

static nccl_result net_connect_v10(int dev, struct comm_config *config, void *handle, void **send_comm,
	struct device_handle **device)
{
	(void)config;
	return net_connect(NULL, dev, handle, send_comm, device);
}

EXPORT const struct net_v10 ncclNetPlugin_v10 = {
	NET_ALIKE, .init = net_init_v10, .getProperties = properties_v9, .listen = net_listen_v8,
	.connect = net_connect_v10, .isend = net_isend, .irecv = net_irecv,
};

#define COLL_V9 { \
	COLL_ALIKE, COLL_DATA_ALIKE, .init = plugin_init, .getProperties = coll_properties_v9, .listen = coll_listen_v8, \
}
EXPORT const struct coll_v9 ncclCollNetPlugin_v10 = COLL_V9;
EXPORT const struct coll_v9 ncclCollNetPlugin_v9 = COLL_V9;
