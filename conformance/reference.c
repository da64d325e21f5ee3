/* The tables of the reference plugin: each ABI version translated to the one
 * set of functions of reference.h. NCCL takes the newest table that it knows. */
#include <stdlib.h>
#include <string.h>

#include "reference.h"

#define EXPORT __attribute__((visibility("default")))

/* A communicator's context, v11 and up; a tuner has one in every version. */
struct context {
	uint64_t id;
	size_t nnodes;
};

static uint64_t id_of(const void *ctx)
{
	return ctx ? ((const struct context *)ctx)->id : 0;
}

static int open_context(void **ctx, uint64_t id, size_t nnodes)
{
	struct context *c = calloc(1, sizeof(*c));

	if (!c)
		return ABI_SYSTEM_ERROR;
	c->id = id;
	c->nnodes = nnodes;
	*ctx = c;
	return ABI_SUCCESS;
}

static int finalize(void *ctx)
{
	free(ctx);
	return ABI_SUCCESS;
}

/* Init may come any number of times, with and without a finalize between. */
static int begin(void)
{
	static int begun;

	return begun++ && mutant("second-init") ? ABI_SYSTEM_ERROR : ABI_SUCCESS;
}

static int init(abi_log *log)
{
	(void)log;
	return begin();
}

static int init_v10(abi_log *log, abi_profile *profile)
{
	(void)profile;
	return init(log);
}

static int init_v11(void **ctx, uint64_t id, struct abi_config *config, abi_log *log, abi_profile *profile)
{
	int rc = init_v10(log, profile);

	(void)config;
	return rc ? rc : open_context(ctx, id, 0);
}

static int coll_init(abi_log *log)
{
	(void)log;
	return ABI_SUCCESS;
}

static int coll_init_v11(void **ctx, uint64_t id, abi_log *log)
{
	(void)log;
	return open_context(ctx, id, 0);
}

static int devices(int *ndev)
{
	*ndev = 1;
	return ABI_SUCCESS;
}

/* One property list for all versions: members that a version lacks are left out
 * where FILL is expanded for it. */
#define FILL(p, device)                                              \
	do {                                                         \
		memset((p), 0, sizeof(*(p)));                        \
		(p)->name = device;                                  \
		(p)->guid = 1;                                       \
		(p)->ptr_support = ABI_PTR_HOST;                     \
		(p)->speed = mutant("bad-properties") ? 0 : 10000;   \
		(p)->port = 1;                                       \
		(p)->max_comms = 65536;                              \
		(p)->max_recvs = mutant("bad-properties") ? 0 : 1;   \
	} while (0)

#define FILL_V9(p)                                         \
	do {                                               \
		(p)->vdevice.ndevs = 1;                    \
		(p)->max_p2p_bytes = REF_MAX_BYTES;        \
		(p)->max_coll_bytes = REF_MAX_BYTES;       \
	} while (0)

static char net_name[] = "reference0";
static char other_name[] = "reference-coll0";

static char *coll_name(void)
{
	return mutant("coll-name") ? other_name : net_name;
}

/* get_properties of net and CollNet, which must name the same device. */
#define PROPERTIES(version, MORE)                                               \
	static int properties_v##version(int dev, struct abi_props_v##version *p) \
	{                                                                       \
		if (dev != 0)                                                   \
			return ABI_INVALID_ARGUMENT;                            \
		FILL(p, net_name);                                              \
		MORE;                                                           \
		return ABI_SUCCESS;                                             \
	}                                                                       \
	static int coll_properties_v##version(int dev, struct abi_props_v##version *p) \
	{                                                                       \
		int rc = properties_v##version(dev, p);                         \
										\
		if (rc == ABI_SUCCESS)                                          \
			p->name = coll_name();                                  \
		return rc;                                                      \
	}

PROPERTIES(8, (void)0)
PROPERTIES(9, FILL_V9(p))
PROPERTIES(11, FILL_V9(p); p->max_multi_request_size = 1)
PROPERTIES(12, FILL_V9(p); p->max_multi_request_size = 1; p->rail_id = p->plane_id = ABI_ID_UNDEFINED)

static int net_listen(int dev, void *handle, void **listen)
{
	return dev == 0 ? ref_listen(0, handle, listen) : ABI_INVALID_ARGUMENT;
}

static int listen_v11(void *ctx, int dev, void *handle, void **listen)
{
	return dev == 0 ? ref_listen(id_of(ctx), handle, listen) : ABI_INVALID_ARGUMENT;
}

static int net_connect(int dev, void *handle, void **send, struct abi_device **device)
{
	(void)device;
	return dev == 0 ? ref_net_connect(handle, send) : ABI_INVALID_ARGUMENT;
}

static int connect_v10(int dev, struct abi_config *config, void *handle, void **send, struct abi_device **device)
{
	(void)config;
	return net_connect(dev, handle, send, device);
}

static int connect_v11(void *ctx, int dev, void *handle, void **send, struct abi_device **device)
{
	(void)ctx;
	return net_connect(dev, handle, send, device);
}

static int net_accept(void *listen, void **recv, struct abi_device **device)
{
	(void)device;
	return ref_net_accept(listen, recv);
}

static int isend_v8(void *comm, void *data, int size, int tag, void *mhandle, void **request)
{
	(void)tag;
	return ref_net_isend(comm, data, (size_t)size, mhandle, request);
}

static int isend_v9(void *comm, void *data, size_t size, int tag, void *mhandle, void **request)
{
	(void)tag;
	return ref_net_isend(comm, data, size, mhandle, request);
}

static int isend_v10(void *comm, void *data, size_t size, int tag, void *mhandle, void *phandle, void **request)
{
	(void)phandle;
	return isend_v9(comm, data, size, tag, mhandle, request);
}

static int irecv_v8(void *comm, int n, void **data, int *sizes, int *tags, void **mhandles, void **request)
{
	size_t size = (size_t)sizes[0];

	(void)tags;
	return ref_net_irecv(comm, n, data, &size, mhandles, request);
}

static int irecv_v9(void *comm, int n, void **data, size_t *sizes, int *tags, void **mhandles, void **request)
{
	(void)tags;
	return ref_net_irecv(comm, n, data, sizes, mhandles, request);
}

static int irecv_v10(void *comm, int n, void **data, size_t *sizes, int *tags, void **mhandles, void **phandles,
	void **request)
{
	(void)phandles;
	return irecv_v9(comm, n, data, sizes, tags, mhandles, request);
}

static int net_iflush(void *comm, int n, void **data, int *sizes, void **mhandles, void **request)
{
	(void)data;
	(void)sizes;
	(void)mhandles;
	return ref_net_iflush(comm, n, request);
}

static int set_attr(void *ctx, struct abi_attr *attr)
{
	(void)ctx;
	(void)attr;
	return ABI_SUCCESS;
}

/* NCCL asks once all ranks have connected, on the thread that then makes the tuner. */
static __thread bool asked;

static int reduce_support(int type, int op, int *supported)
{
	asked = true;
	*supported = ref_reduce_support(type, op);
	return ABI_SUCCESS;
}

static int iallreduce_v8(void *comm, void *send, void *recv, int count, int type, int op, void *send_mhandle,
	void *recv_mhandle, void **request)
{
	return ref_coll_allreduce(comm, send, recv, (size_t)count, type, op, send_mhandle, recv_mhandle, request);
}

#define WINDOWS(version, PART)                                                                          \
	static int iallgather_v##version(void *comm, void *send, int n, PART *parts, size_t bytes_per_rank, \
		size_t offset, size_t size, void *send_mhandle, void **request)                         \
	{                                                                                               \
		return ref_coll_allgather(comm, send, n, parts->address, parts->size, parts->mhandle,   \
			bytes_per_rank, offset, size, send_mhandle, request);                           \
	}                                                                                               \
	static int ireduce_scatter_v##version(void *comm, int n, PART *parts, void *recv,               \
		size_t bytes_per_rank, size_t offset, size_t size, int type, int op, void *recv_mhandle, \
		void **request)                                                                         \
	{                                                                                               \
		return ref_coll_reducescatter(comm, n, parts->address, parts->size, parts->mhandle, recv, \
			bytes_per_rank, offset, size, type, op, recv_mhandle, request);                 \
	}

WINDOWS(8, struct abi_part_v8)
WINDOWS(9, struct abi_part)

#define NET(INIT, PROPS, LISTEN, CONNECT, ISEND, IRECV)                                             \
	.name = REF_NAME, .init = INIT, .devices = devices, .get_properties = PROPS, .listen = LISTEN, \
	.connect = CONNECT, .accept = net_accept, .reg_mr = ref_reg, .dereg_mr = ref_dereg,          \
	.isend = ISEND, .irecv = IRECV, .iflush = net_iflush, .test = ref_net_test,                  \
	.close_send = ref_net_close, .close_recv = ref_net_close, .close_listen = ref_close_listen

#define COLL(INIT, PROPS, LISTEN, ALLREDUCE, ALLGATHER, REDUCE_SCATTER)                             \
	.name = REF_NAME, .init = INIT, .devices = devices, .get_properties = PROPS, .listen = LISTEN, \
	.connect = ref_coll_connect, .reduce_support = reduce_support, .reg_mr = ref_reg,            \
	.dereg_mr = ref_dereg, .iallreduce = ALLREDUCE, .iallgather = ALLGATHER,                     \
	.ireduce_scatter = REDUCE_SCATTER, .iflush = ref_coll_iflush, .test = ref_coll_test,         \
	.close_coll = ref_coll_close, .close_listen = ref_close_listen

EXPORT const struct abi_net_v8 ncclNetPlugin_v8 = {
	NET(init, properties_v8, net_listen, net_connect, isend_v8, irecv_v8),
};
EXPORT const struct abi_net_v9 ncclNetPlugin_v9 = {
	NET(init, properties_v9, net_listen, net_connect, isend_v9, irecv_v9),
};
EXPORT const struct abi_net_v10 ncclNetPlugin_v10 = {
	NET(init_v10, properties_v9, net_listen, connect_v10, isend_v10, irecv_v10),
};
EXPORT const struct abi_net_v11 ncclNetPlugin_v11 = {
	NET(init_v11, properties_v11, listen_v11, connect_v11, isend_v10, irecv_v10),
	.finalize = finalize,
	.set_attr = set_attr,
};
EXPORT const struct abi_net_v12 ncclNetPlugin_v12 = {
	NET(init_v11, properties_v12, listen_v11, connect_v11, isend_v10, irecv_v10),
	.finalize = finalize,
	.set_attr = set_attr,
};

EXPORT const struct abi_coll_v8 ncclCollNetPlugin_v8 = {
	COLL(coll_init, coll_properties_v8, net_listen, iallreduce_v8, iallgather_v8, ireduce_scatter_v8),
};
EXPORT const struct abi_coll_v9 ncclCollNetPlugin_v9 = {
	COLL(coll_init, coll_properties_v9, net_listen, ref_coll_allreduce, iallgather_v9, ireduce_scatter_v9),
};
EXPORT const struct abi_coll_v9 ncclCollNetPlugin_v10 = {
	COLL(coll_init, coll_properties_v9, net_listen, ref_coll_allreduce, iallgather_v9, ireduce_scatter_v9),
};
EXPORT const struct abi_coll_v11 ncclCollNetPlugin_v11 = {
	COLL(coll_init_v11, coll_properties_v11, listen_v11, ref_coll_allreduce, iallgather_v9, ireduce_scatter_v9),
	.finalize = finalize,
};
EXPORT const struct abi_coll_v12 ncclCollNetPlugin_v12 = {
	COLL(coll_init_v11, coll_properties_v12, listen_v11, ref_coll_allreduce, iallgather_v9, ireduce_scatter_v9),
	.finalize = finalize,
};

/* Nodes whose CollNet the tuner of this thread's communicator may choose: none if NCCL has given it up. */
static size_t confirmed(size_t nnodes)
{
	bool was = asked || mutant("tuner-any-connected");

	asked = false;
	return was ? nnodes : 0;
}

static int tuner_init(size_t nranks, size_t nnodes, abi_log *log, void **ctx)
{
	(void)nranks;
	(void)log;
	return open_context(ctx, 0, confirmed(nnodes));
}

static int tuner_init_v5(void **ctx, uint64_t id, size_t nranks, size_t nnodes, abi_log *log,
	struct abi_nvl_domains *domains, struct abi_constants *constants)
{
	(void)nranks;
	(void)log;
	(void)domains;
	(void)constants;
	return open_context(ctx, id, confirmed(nnodes));
}

static int info_v2(void *ctx, int func, size_t bytes, int collnet, int nvls, int pipe_ops, int *algo, int *proto,
	int *channels)
{
	(void)bytes;
	(void)nvls;
	(void)pipe_ops;
	(void)channels;
	return ref_tune_v2(((struct context *)ctx)->nnodes, func, collnet, algo, proto);
}

static int info_v3(void *ctx, int func, size_t bytes, int pipe_ops, float **costs, int algos, int protos,
	int *channels)
{
	const struct context *c = ctx;

	(void)bytes;
	(void)pipe_ops;
	(void)channels;
	ref_tune(c->id, c->nnodes, func, (float *)(void *)costs, algos, protos);
	return ABI_SUCCESS;
}

static int info_v4(void *ctx, int func, size_t bytes, int pipe_ops, float **costs, int algos, int protos,
	int registered, int *channels)
{
	(void)registered;
	return info_v3(ctx, func, bytes, pipe_ops, costs, algos, protos, channels);
}

EXPORT const struct abi_tuner_v2 ncclTunerPlugin_v2 = {REF_NAME, tuner_init, info_v2, finalize};
EXPORT const struct abi_tuner_v3 ncclTunerPlugin_v3 = {REF_NAME, tuner_init, info_v3, finalize};
EXPORT const struct abi_tuner_v4 ncclTunerPlugin_v4 = {REF_NAME, tuner_init, info_v4, finalize};
EXPORT const struct abi_tuner_v5 ncclTunerPlugin_v5 = {REF_NAME, tuner_init_v5, info_v4, finalize};
EXPORT const struct abi_tuner_v6 ncclTunerPlugin_v6 = {REF_NAME, tuner_init_v5, info_v4, finalize, NULL};
