/* NCCL 2.26.2: net v10 (a profiler, a traffic class); CollNet v10 is as v9. */
#include "version.h"

struct props {
	ABI_PROPS_V9(struct abi_vdevice)
};

struct net_v10 {
	const char *name;
	int (*init)(abi_log *log, abi_profile *profile);
	int (*devices)(int *ndev);
	int (*get_properties)(int dev, struct props *props);
	int (*listen)(int dev, void *handle, void **listen);
	int (*connect)(int dev, struct abi_config *config, void *handle, void **send, struct abi_device **device);
	int (*accept)(void *listen, void **recv, struct abi_device **device);
	ABI_MEMORY
	ABI_SEND_RECV_V10
	ABI_NET_END
	int (*make_vdevice)(int *dev, struct abi_vdevice *props);
};

struct coll_v10 {
	ABI_COLL_V9(struct props, struct abi_vdevice)
};

SIZE(props, 104);
LAYOUT_PROPS_V9(props);
AT(props, max_p2p_bytes, 88);
AT(props, max_coll_bytes, 96);
SIZE(abi_config, 4);
LAYOUT_NET(net_v10, 160);
AT(net_v10, make_vdevice, 152);
LAYOUT_COLL(coll_v10, 144);
AT(coll_v10, make_vdevice, 136);

#ifdef REFERENCE

REF_PROPERTIES(REF_PROPS_V9)

static int init(abi_log *log, abi_profile *profile)
{
	ref_profile(profile);
	return ref_init_v8(log);
}

static int connect(int dev, struct abi_config *config, void *handle, void **send, struct abi_device **device)
{
	(void)config;
	return ref_net_connect(NULL, dev, handle, send, device);
}

EXPORT const struct net_v10 ncclNetPlugin_v10 = {
	REF_NET(init, ref_listen_v8, connect, ref_net_isend, ref_net_irecv),
};
EXPORT const struct coll_v10 ncclCollNetPlugin_v10 = {
	REF_COLL(ref_coll_init_v8, ref_listen_v8, ref_coll_allreduce, ref_coll_allgather, ref_coll_reducescatter),
};

#else

static const struct net_v10 *net;
static const struct coll_v10 *coll;

PROPERTIES(PROPS_V9, .max_multi_request_size = 1, .rail_id = ABI_ID_UNDEFINED, .plane_id = ABI_ID_UNDEFINED)
NO_CONTEXTS

static int init(void **ctx, uint64_t id, struct abi_config *config, abi_log *log, abi_profile *profile)
{
	(void)ctx, (void)id, (void)config;
	return net->init(log, profile);
}

static int connect(void *ctx, int dev, void *handle, void **send, struct abi_device **device)
{
	static struct abi_config config = { .traffic_class = -1 };

	(void)ctx;
	return net->connect(dev, &config, handle, send, device);
}

NET_VERSION(10, NET_ALIKE(net), .init = init, .get_properties = properties, .listen = listen,
	.connect = connect, .isend = net->isend, .irecv = net->irecv, .max_vdevice = 4,
	.profiles = true)

COLL_VERSION(10, COLL_ALIKE(coll), COLL_DATA_V9(coll), .init = init_coll, .get_properties = properties_coll,
	.listen = listen_coll)

#endif
