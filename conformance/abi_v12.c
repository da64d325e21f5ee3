/* NCCL 2.30.3: net and CollNet v12 (rails and planes), tuner v6 (chunks). */
#include "version.h"

struct vdevice {
	int ndevs;
	int devs[8];
};

struct props {
	ABI_PROPS_V9(struct vdevice)
	int max_multi_request_size;
	int16_t rail_id;
	int16_t plane_id;
};

struct net_v12 {
	ABI_NET_V11(struct props, struct vdevice)
};

struct coll_v12 {
	ABI_COLL_V11(struct props, struct vdevice)
};

struct tuner_v6 {
	ABI_TUNER_V5
	int (*get_chunk_size)(void *ctx, int func, size_t bytes, int algo, int proto, int channels,
		size_t *chunk);		/* or NULL */
};

SIZE(vdevice, 36);
SIZE(props, 128);
LAYOUT_PROPS_V9(props);
AT(props, max_p2p_bytes, 104);
AT(props, max_coll_bytes, 112);
AT(props, max_multi_request_size, 120);
AT(props, rail_id, 124);
AT(props, plane_id, 126);
LAYOUT_NET(net_v12, 176);
AT(net_v12, make_vdevice, 152);
AT(net_v12, finalize, 160);
AT(net_v12, set_attr, 168);
LAYOUT_COLL(coll_v12, 152);
AT(coll_v12, make_vdevice, 136);
AT(coll_v12, finalize, 144);
LAYOUT_TUNER(tuner_v6, 40, finalize);
AT(tuner_v6, get_chunk_size, 32);

#ifdef REFERENCE

REF_PROPERTIES(REF_PROPS_V9, .max_multi_request_size = 1, .rail_id = ABI_ID_UNDEFINED, .plane_id = ABI_ID_UNDEFINED)

EXPORT const struct net_v12 ncclNetPlugin_v12 = {
	REF_NET(ref_init, ref_listen, ref_net_connect, ref_net_isend, ref_net_irecv),
	.finalize = ref_finalize,
	.set_attr = ref_set_attr,
};
EXPORT const struct coll_v12 ncclCollNetPlugin_v12 = {
	REF_COLL(ref_coll_init, ref_listen, ref_coll_allreduce, ref_coll_allgather, ref_coll_reducescatter),
	.finalize = ref_finalize,
};
EXPORT const struct tuner_v6 ncclTunerPlugin_v6 = { REF_NAME, ref_tuner_init, ref_tuner_info, ref_finalize,
	ref_tuner_chunk };

#else

static const struct net_v12 *net;
static const struct coll_v12 *coll;
static const struct tuner_v6 *tuner;

PROPERTIES(PROPS_V9, .max_multi_request_size = p.max_multi_request_size, .rail_id = p.rail_id, .plane_id = p.plane_id)

NET_VERSION(12, NET_ALIKE_V11(net), .get_properties = properties, .max_vdevice = 8)

COLL_VERSION(12, COLL_ALIKE_V11(coll), .get_properties = properties_coll)

TUNER_VERSION(6, tuner, .init = tuner->init, .get_info = tuner->get_info, .finalize = tuner->finalize,
	.get_chunk_size = tuner->get_chunk_size)

#endif
