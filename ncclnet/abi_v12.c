/* Net and CollNet v12, tuner v6: NCCL 2.30. The newest: all others are made like it. */
#include "plugin.h"

EXPORT const struct net_v12 ncclNetPlugin_v12 = {
	NET_ALIKE, .init = net_init_v11, .getProperties = properties_v12, .listen = net_listen, .connect = net_connect,
	.isend = net_isend, .irecv = net_irecv, .finalize = context_finalize, .setNetAttr = net_attr,
};

EXPORT const struct coll_v12 ncclCollNetPlugin_v12 = {
	COLL_ALIKE, COLL_DATA_ALIKE, .init = context_init, .getProperties = coll_properties_v12, .listen = coll_listen,
	.finalize = context_finalize,
};

EXPORT const struct tuner_v6 ncclTunerPlugin_v6 = {
	.name = PLUGIN_NAME, .init = tuner_init_v6, .getCollInfo = tuner_costs, .finalize = tuner_destroy,
		.getChunkSize = tuner_chunk,
};
