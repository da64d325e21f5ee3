/* NCCL 2.24.3: net and CollNet v9 (sizes are size_t, several devices taken as one), tuner v4
 * (registered buffers). */
#include "version.h"

struct props {
	ABI_PROPS_V9(struct abi_vdevice)
};

struct net_v9 {
	const char *name;
	int (*init)(abi_log *log);
	int (*devices)(int *ndev);
	int (*get_properties)(int dev, struct props *props);
	int (*listen)(int dev, void *handle, void **listen);
	int (*connect)(int dev, void *handle, void **send, struct abi_device **device);
	int (*accept)(void *listen, void **recv, struct abi_device **device);
	ABI_MEMORY
	int (*isend)(void *comm, void *data, size_t size, int tag, void *mhandle, void **request);
	int (*irecv)(void *comm, int n, void **data, size_t *sizes, int *tags, void **mhandles, void **request);
	ABI_NET_END
	int (*make_vdevice)(int *dev, struct abi_vdevice *props);
};

struct coll_v9 {
	ABI_COLL_V9(struct props, struct abi_vdevice)
};

struct tuner_v4 {
	const char *name;
	int (*init)(size_t nranks, size_t nnodes, abi_log *log, void **ctx);
	ABI_TUNER_INFO_V4
	int (*destroy)(void *ctx);
};

SIZE(abi_vdevice, 20);
SIZE(props, 104);
LAYOUT_PROPS_V9(props);
AT(props, max_p2p_bytes, 88);
AT(props, max_coll_bytes, 96);
SIZE(abi_part, 24);
AT(abi_part, address, 8);
AT(abi_part, size, 16);
LAYOUT_NET(net_v9, 160);
AT(net_v9, make_vdevice, 152);
LAYOUT_COLL(coll_v9, 144);
AT(coll_v9, make_vdevice, 136);
LAYOUT_TUNER(tuner_v4, 32, destroy);

#ifdef REFERENCE

REF_PROPERTIES(REF_PROPS_V9)

static int isend(void *comm, void *data, size_t size, int tag, void *mhandle, void **request)
{
	return ref_net_isend(comm, data, size, tag, mhandle, NULL, request);
}

static int irecv(void *comm, int n, void **data, size_t *sizes, int *tags, void **mhandles, void **request)
{
	return ref_net_irecv(comm, n, data, sizes, tags, mhandles, NULL, request);
}

EXPORT const struct net_v9 ncclNetPlugin_v9 = {
	REF_NET(ref_init_v8, ref_listen_v8, ref_net_connect_v8, isend, irecv),
};
EXPORT const struct coll_v9 ncclCollNetPlugin_v9 = {
	REF_COLL(ref_coll_init_v8, ref_listen_v8, ref_coll_allreduce, ref_coll_allgather, ref_coll_reducescatter),
};
EXPORT const struct tuner_v4 ncclTunerPlugin_v4 = { REF_NAME, ref_tuner_init_v2, ref_tuner_info, ref_finalize };

#else

static const struct net_v9 *net;
static const struct coll_v9 *coll;
static const struct tuner_v4 *tuner;

PROPERTIES(PROPS_V9, .max_multi_request_size = 1, .rail_id = ABI_ID_UNDEFINED, .plane_id = ABI_ID_UNDEFINED)
NO_CONTEXTS
NO_CONTEXTS_V9

static int isend(void *comm, void *data, size_t size, int tag, void *mhandle, void *phandle, void **request)
{
	(void)phandle;
	return net->isend(comm, data, size, tag, mhandle, request);
}

static int irecv(void *comm, int n, void **data, size_t *sizes, int *tags, void **mhandles, void **phandles,
	void **request)
{
	(void)phandles;
	return net->irecv(comm, n, data, sizes, tags, mhandles, request);
}

NET_VERSION(9, NET_ALIKE(net), .init = init, .get_properties = properties, .listen = listen,
	.connect = connect, .isend = isend, .irecv = irecv, .max_vdevice = 4)

COLL_VERSION(9, COLL_ALIKE(coll), COLL_DATA_V9(coll), .init = init_coll, .get_properties = properties_coll,
	.listen = listen_coll)

TUNER_INIT_V2(init_tuner, tuner)

TUNER_VERSION(4, tuner, .init = init_tuner, .get_info = tuner->get_info, .finalize = tuner->destroy)

#endif
