/* NCCL 2.20.3: net and CollNet v8, sizes of 32 bits. In its time came the tuners v2 (2.21.5) and v3
 * (2.22.3: a table of costs). v1, of 2.20 alone, is not tested. */
#include "version.h"

struct props {
	char *name;
	char *pci_path;
	uint64_t guid;
	int ptr_support;
	int reg_is_global;
	int speed;
	int port;
	float latency;
	int max_comms;
	int max_recvs;
	int device_type;
	int device_version;
};

struct part {
	void *mhandle;
	void *address;
	uint32_t size;
};

struct net_v8 {
	const char *name;
	int (*init)(abi_log *log);
	int (*devices)(int *ndev);
	int (*get_properties)(int dev, struct props *props);
	int (*listen)(int dev, void *handle, void **listen);
	int (*connect)(int dev, void *handle, void **send, struct abi_device **device);
	int (*accept)(void *listen, void **recv, struct abi_device **device);
	ABI_MEMORY
	int (*isend)(void *comm, void *data, int size, int tag, void *mhandle, void **request);
	int (*irecv)(void *comm, int n, void **data, int *sizes, int *tags, void **mhandles, void **request);
	ABI_NET_END
};

struct coll_v8 {
	const char *name;
	int (*init)(abi_log *log);
	int (*devices)(int *ndev);
	int (*get_properties)(int dev, struct props *props);
	int (*listen)(int dev, void *handle, void **listen);
	ABI_COLL_OPS(struct part, int)
};

struct tuner_v2 {
	const char *name;
	int (*init)(size_t nranks, size_t nnodes, abi_log *log, void **ctx);
	int (*get_info)(void *ctx, int func, size_t bytes, int collnet, int nvls, int pipe_ops,
		int *algo, int *proto, int *channels);
	int (*destroy)(void *ctx);
};

struct tuner_v3 {
	const char *name;
	int (*init)(size_t nranks, size_t nnodes, abi_log *log, void **ctx);
	int (*get_info)(void *ctx, int func, size_t bytes, int pipe_ops, float **costs,
		int algos, int protos, int *channels);
	int (*destroy)(void *ctx);
};

SIZE(abi_device, 32);
AT(abi_device, handle, 8);
AT(abi_device, needs_progress, 24);
SIZE(props, 64);
AT(props, guid, 16);
AT(props, ptr_support, 24);
AT(props, reg_is_global, 28);
AT(props, speed, 32);
AT(props, port, 36);
AT(props, latency, 40);
AT(props, max_comms, 44);
AT(props, max_recvs, 48);
AT(props, device_type, 52);
AT(props, device_version, 56);
SIZE(part, 24);
AT(part, address, 8);
AT(part, size, 16);
LAYOUT_NET(net_v8, 152);
LAYOUT_COLL(coll_v8, 136);
LAYOUT_TUNER(tuner_v2, 32, destroy);
LAYOUT_TUNER(tuner_v3, 32, destroy);

#ifdef REFERENCE

REF_PROPERTIES()

static int isend(void *comm, void *data, int size, int tag, void *mhandle, void **request)
{
	return ref_net_isend(comm, data, (size_t)size, tag, mhandle, NULL, request);
}

static int irecv(void *comm, int n, void **data, int *sizes, int *tags, void **mhandles, void **request)
{
	size_t size = (size_t)sizes[0];

	return ref_net_irecv(comm, n, data, &size, tags, mhandles, NULL, request);
}

static int iallreduce(void *comm, void *send, void *recv, int count, int type, int op, void *send_mhandle,
	void *recv_mhandle, void **request)
{
	return ref_coll_allreduce(comm, send, recv, (size_t)count, type, op, send_mhandle, recv_mhandle, request);
}

static int iallgather(void *comm, void *send, int n, struct part *parts, size_t bytes_per_rank,
	size_t offset, size_t size, void *send_mhandle, void **request)
{
	struct abi_part part = { parts->mhandle, parts->address, parts->size };

	return ref_coll_allgather(comm, send, n, &part, bytes_per_rank, offset, size, send_mhandle, request);
}

static int ireduce_scatter(void *comm, int n, struct part *parts, void *recv, size_t bytes_per_rank,
	size_t offset, size_t size, int type, int op, void *recv_mhandle, void **request)
{
	struct abi_part part = { parts->mhandle, parts->address, parts->size };

	return ref_coll_reducescatter(comm, n, &part, recv, bytes_per_rank, offset, size, type, op, recv_mhandle,
		request);
}

static int info_v2(void *ctx, int func, size_t bytes, int collnet, int nvls, int pipe_ops, int *algo, int *proto,
	int *channels)
{
	(void)bytes, (void)nvls, (void)pipe_ops, (void)channels;
	return ref_tuner_choose(ctx, func, collnet, algo, proto);
}

static int info_v3(void *ctx, int func, size_t bytes, int pipe_ops, float **costs, int algos, int protos,
	int *channels)
{
	return ref_tuner_info(ctx, func, bytes, pipe_ops, costs, algos, protos, 0, channels);
}

EXPORT const struct net_v8 ncclNetPlugin_v8 = {
	REF_NET(ref_init_v8, ref_listen_v8, ref_net_connect_v8, isend, irecv),
};
EXPORT const struct coll_v8 ncclCollNetPlugin_v8 = {
	REF_COLL(ref_coll_init_v8, ref_listen_v8, iallreduce, iallgather, ireduce_scatter),
};
EXPORT const struct tuner_v2 ncclTunerPlugin_v2 = { REF_NAME, ref_tuner_init_v2, info_v2, ref_finalize };
EXPORT const struct tuner_v3 ncclTunerPlugin_v3 = { REF_NAME, ref_tuner_init_v2, info_v3, ref_finalize };

#else

static const struct net_v8 *net;
static const struct coll_v8 *coll;
static const struct tuner_v2 *tuner_v2;
static const struct tuner_v3 *tuner_v3;

PROPERTIES(.vdevice = { 1 }, .max_p2p_bytes = (size_t)1 << 30, .max_coll_bytes = (size_t)1 << 29,
	.max_multi_request_size = 1, .rail_id = ABI_ID_UNDEFINED, .plane_id = ABI_ID_UNDEFINED)
NO_CONTEXTS
NO_CONTEXTS_V9

static int isend(void *comm, void *data, size_t size, int tag, void *mhandle, void *phandle, void **request)
{
	(void)phandle;
	if (size > (size_t)1 << 30)
		return ABI_INTERNAL_ERROR;
	return net->isend(comm, data, (int)size, tag, mhandle, request);
}

static int irecv(void *comm, int n, void **data, size_t *sizes, int *tags, void **mhandles, void **phandles,
	void **request)
{
	int small[8];

	(void)phandles;
	if (*request == ABI_OPTIONAL_COMPLETION)
		*request = NULL;
	for (int i = 0; i < n && i < 8; i++) {
		if (sizes[i] > (size_t)1 << 30)
			return ABI_INTERNAL_ERROR;
		small[i] = (int)sizes[i];
	}
	return net->irecv(comm, n, data, small, tags, mhandles, request);
}

static int iallreduce(void *comm, void *send, void *recv, size_t count, int type, int op, void *send_mhandle,
	void *recv_mhandle, void **request)
{
	if (count > (size_t)1 << 30)
		return ABI_INTERNAL_ERROR;
	return coll->iallreduce(comm, send, recv, (int)count, type, op, send_mhandle, recv_mhandle, request);
}

/* One part, of 32 bits. */
static int one_part(struct part *to, int n, const struct abi_part *parts)
{
	if (n != 1 || parts[0].size > (size_t)1 << 29)
		return ABI_INTERNAL_ERROR;
	*to = (struct part){ parts[0].mhandle, parts[0].address, (uint32_t)parts[0].size };
	return ABI_SUCCESS;
}

static int iallgather(void *comm, void *send, int n, struct abi_part *parts, size_t bytes_per_rank,
	size_t window_offset, size_t window_bytes, void *send_mhandle, void **request)
{
	struct part part;
	int result = one_part(&part, n, parts);

	return result != ABI_SUCCESS ? result : coll->iallgather(comm, send, 1, &part, bytes_per_rank, window_offset,
		window_bytes, send_mhandle, request);
}

static int ireduce_scatter(void *comm, int n, struct abi_part *parts, void *recv, size_t bytes_per_rank,
	size_t window_offset, size_t window_bytes, int type, int op, void *recv_mhandle, void **request)
{
	struct part part;
	int result = one_part(&part, n, parts);

	return result != ABI_SUCCESS ? result : coll->ireduce_scatter(comm, 1, &part, recv, bytes_per_rank,
		window_offset, window_bytes, type, op, recv_mhandle, request);
}

NET_VERSION(8, NET_ALIKE(net), .init = init, .get_properties = properties, .listen = listen,
	.connect = connect, .isend = isend, .irecv = irecv, .resets_request = true, .max_vdevice = 1)

COLL_VERSION(8, COLL_ALIKE(coll), .init = init_coll, .get_properties = properties_coll, .listen = listen_coll,
	.iallreduce = iallreduce, .iallgather = iallgather, .ireduce_scatter = ireduce_scatter)

TUNER_INIT_V2(init_v2, tuner_v2)
TUNER_INIT_V2(init_v3, tuner_v3)

static int get_info_v3(void *ctx, int func, size_t bytes, int pipe_ops, float **costs, int algos, int protos,
	int registered, int *channels)
{
	(void)registered;
	return tuner_v3->get_info(ctx, func, bytes, pipe_ops, costs, algos, protos, channels);
}

TUNER_VERSION(2, tuner_v2, .init = init_v2, .choose = tuner_v2->get_info, .finalize = tuner_v2->destroy)

TUNER_VERSION(3, tuner_v3, .init = init_v3, .get_info = get_info_v3, .finalize = tuner_v3->destroy)

#endif
