/* Net and CollNet v12: NCCL 2.30. The newest: all others are made like it. */
#include "plugin.h"

EXPORT const struct net_v12 ncclNetPlugin_v12 = {
	NET_ALIKE, .init = net_init_v11, .getProperties = properties_v12, .listen = net_listen, .connect = net_connect,
	.isend = net_isend, .irecv = net_irecv, .finalize = context_finalize, .setNetAttr = net_attr,
};

EXPORT const struct coll_v12 ncclCollNetPlugin_v12 = {
	COLL_ALIKE, COLL_DATA_ALIKE, .init = context_init, .getProperties = properties_v12, .listen = coll_listen,
	.finalize = context_finalize,
};
