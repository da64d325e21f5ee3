/* NCCL 2.28.3: net and CollNet v11 (a context a communicator), tuner v5 (one as well). */
#include "version.h"

struct props {
	ABI_PROPS_V9(struct abi_vdevice)
	int max_multi_request_size;
};

struct net_v11 {
	ABI_NET_V11(struct props, struct abi_vdevice)
};

struct coll_v11 {
	ABI_COLL_V11(struct props, struct abi_vdevice)
};

struct tuner_v5 {
	ABI_TUNER_V5
};

SIZE(props, 112);
LAYOUT_PROPS_V9(props);
AT(props, max_p2p_bytes, 88);
AT(props, max_coll_bytes, 96);
AT(props, max_multi_request_size, 104);
LAYOUT_NET(net_v11, 176);
AT(net_v11, make_vdevice, 152);
AT(net_v11, finalize, 160);
AT(net_v11, set_attr, 168);
LAYOUT_COLL(coll_v11, 152);
AT(coll_v11, make_vdevice, 136);
AT(coll_v11, finalize, 144);
LAYOUT_TUNER(tuner_v5, 32, finalize);
SIZE(abi_peers, 16);
SIZE(abi_attr, 44);
AT(abi_attr, recv, 16);
AT(abi_attr, op, 32);
AT(abi_attr, algo, 36);
AT(abi_attr, proto, 40);
SIZE(abi_nvl_domains, 12);
SIZE(abi_constants, 1152);
AT(abi_constants, hw_latencies, 168);
AT(abi_constants, ll_max, 672);
AT(abi_constants, ring_ll128_max, 768);
AT(abi_constants, tree_ll128_max, 864);
AT(abi_constants, tree_max, 960);
AT(abi_constants, nvls_tree_max, 1056);

#ifdef REFERENCE

REF_PROPERTIES(REF_PROPS_V9, .max_multi_request_size = 1)

EXPORT const struct net_v11 ncclNetPlugin_v11 = {
	REF_NET(ref_init, ref_listen, ref_net_connect, ref_net_isend, ref_net_irecv),
	.finalize = ref_finalize,
	.set_attr = ref_set_attr,
};
EXPORT const struct coll_v11 ncclCollNetPlugin_v11 = {
	REF_COLL(ref_coll_init, ref_listen, ref_coll_allreduce, ref_coll_allgather, ref_coll_reducescatter),
	.finalize = ref_finalize,
};
EXPORT const struct tuner_v5 ncclTunerPlugin_v5 = { REF_NAME, ref_tuner_init, ref_tuner_info, ref_finalize };

#else

static const struct net_v11 *net;
static const struct coll_v11 *coll;
static const struct tuner_v5 *tuner;

PROPERTIES(PROPS_V9, .max_multi_request_size = p.max_multi_request_size,
	.rail_id = ABI_ID_UNDEFINED, .plane_id = ABI_ID_UNDEFINED)

NET_VERSION(11, NET_ALIKE_V11(net), .get_properties = properties, .max_vdevice = 4)

COLL_VERSION(11, COLL_ALIKE_V11(coll), .get_properties = properties_coll)

TUNER_VERSION(5, tuner, .init = tuner->init, .get_info = tuner->get_info, .finalize = tuner->finalize)

#endif
