/* Net and CollNet v11, tuner v5: NCCL 2.28 and 2.29. Only the properties are shorter than those of v12. */
#include "plugin.h"

nccl_result net_init_v11(void **ctx, uint64_t comm_id, struct comm_config *config, nccl_logger log,
	nccl_profiler profiler)
{
	nccl_result result = context_init(ctx, comm_id, log);

	(void)config;
	if (result == NCCL_SUCCESS)
		((struct context *)*ctx)->profiler = profiler;
	return result;
}

EXPORT const struct net_v11 ncclNetPlugin_v11 = {
	NET_ALIKE, .init = net_init_v11, .getProperties = properties_v11, .listen = net_listen, .connect = net_connect,
	.isend = net_isend, .irecv = net_irecv, .finalize = context_finalize, .setNetAttr = net_attr,
};

EXPORT const struct coll_v11 ncclCollNetPlugin_v11 = {
	COLL_ALIKE, COLL_DATA_ALIKE, .init = context_init, .getProperties = coll_properties_v11, .listen = coll_listen,
	.finalize = context_finalize,
};

EXPORT const struct tuner_v5 ncclTunerPlugin_v5 = {
	.name = PLUGIN_NAME, .init = tuner_init_v5, .getCollInfo = tuner_costs, .finalize = tuner_destroy,
};
