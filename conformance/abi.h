/* NCCL's plugin ABI, in our own words: what several versions have alike. The rest of version N is
 * in abi_vN.c. Layouts were read from the headers of NVIDIA/nccl at the tags that those files name
 * and hold for every later tag; assertions pin size and offsets on LP64. */
#ifndef ABI_H
#define ABI_H

#include <stddef.h>
#include <stdint.h>

/* ncclResult_t */
enum {
	ABI_SUCCESS = 0,
	ABI_UNHANDLED_CUDA_ERROR = 1,
	ABI_SYSTEM_ERROR = 2,
	ABI_INTERNAL_ERROR = 3,
	ABI_INVALID_ARGUMENT = 4,
	ABI_INVALID_USAGE = 5,
	ABI_REMOTE_ERROR = 6,
	ABI_IN_PROGRESS = 7,
};

enum {
	ABI_HANDLE_BYTES = 128,		/* NCCL_NET_HANDLE_MAXSIZE */
	ABI_REQUESTS = 32,		/* NCCL_NET_MAX_REQUESTS, a comm */
	ABI_PTR_HOST = 1,
	ABI_PTR_CUDA = 2,
	ABI_PTR_DMABUF = 4,
	ABI_ID_UNDEFINED = -1,		/* railId, planeId */
};

/* A caller that will not wait for a receive's completion passes this in
 * *request on entry (NCCL_NET_OPTIONAL_RECV_COMPLETION, since 2.24). */
#define ABI_OPTIONAL_COMPLETION ((void *)(uintptr_t)1)

/* ncclDataType_t; the two f8 types came with 2.24. */
enum {
	ABI_INT8 = 0, ABI_UINT8 = 1, ABI_INT32 = 2, ABI_UINT32 = 3, ABI_INT64 = 4, ABI_UINT64 = 5,
	ABI_FLOAT16 = 6, ABI_FLOAT32 = 7, ABI_FLOAT64 = 8, ABI_BFLOAT16 = 9,
	ABI_FLOAT8E4M3 = 10, ABI_FLOAT8E5M2 = 11, ABI_TYPES = 12,
};

/* ncclRedOp_t */
enum { ABI_SUM = 0, ABI_PROD = 1, ABI_MAX = 2, ABI_MIN = 3, ABI_AVG = 4, ABI_OPS = 5 };

/* ncclFunc_t, as far as a tuner is asked (8 to 14 came with 2.28 and 2.29). */
enum {
	ABI_BROADCAST = 0, ABI_REDUCE = 1, ABI_ALLGATHER = 2, ABI_REDUCE_SCATTER = 3,
	ABI_ALLREDUCE = 4, ABI_SENDRECV = 5, ABI_SEND = 6, ABI_RECV = 7,
};

/* NCCL_ALGO_*, NCCL_PROTO_* */
enum {
	ABI_TREE = 0, ABI_RING = 1, ABI_COLLNET_DIRECT = 2, ABI_COLLNET_CHAIN = 3,
	ABI_NVLS = 4, ABI_NVLS_TREE = 5, ABI_PAT = 6, ABI_ALGOS = 7,
	ABI_LL = 0, ABI_LL128 = 1, ABI_SIMPLE = 2, ABI_PROTOS = 3,
};

/* NCCL_ALGO_PROTO_IGNORE: the cost of what cannot be chosen. */
#define ABI_COST_IGNORE (-1.0f)

/* Log levels (ncclDebugLogLevel) and the subsystem bit of networks. */
enum { ABI_LOG_WARN = 2, ABI_LOG_INFO = 3, ABI_LOG_TRACE = 5, ABI_LOG_NET = 16 };

typedef void abi_log(int level, unsigned long flags, const char *file, int line, const char *fmt, ...);
/* A net plugin's word to the profiler; type: ABI_EVENT_*. Only START has a parent, the handle of isend or irecv. */
enum { ABI_EVENT_START = 0, ABI_EVENT_STOP = 1, ABI_EVENT_UPDATE = 2, ABI_EVENT_UPDATE_AND_STOP = 3 };
typedef int abi_profile(void **event, int type, void *parent, int64_t plugin, void *data);

/* ncclNetDeviceHandle_v7_t, which all later versions use. */
struct abi_device {
	int type;			/* 0: host */
	int version;
	void *handle;
	size_t size;
	int needs_progress;
};

/* Several devices taken as one: v9 to v11. */
struct abi_vdevice {
	int ndevs;
	int devs[4];
};

/* Device properties from v9 on; v11 and v12 go on behind them. speed is in Mbit/s, latency in
 * microseconds. */
#define ABI_PROPS_V9(VDEVICE) \
	char *name; \
	char *pci_path; \
	uint64_t guid; \
	int ptr_support; \
	int reg_is_global; \
	int force_flush; \
	int speed; \
	int port; \
	float latency; \
	int max_comms; \
	int max_recvs; \
	int device_type; \
	int device_version; \
	VDEVICE vdevice; \
	size_t max_p2p_bytes; \
	size_t max_coll_bytes;

/* ncclNetCommConfig: v10 and later. */
struct abi_config {
	int traffic_class;		/* -1: none chosen */
};

/* ncclNetAttr: v11 and later. op, algo and proto are bit masks, all ones: any. */
struct abi_peers {
	int32_t max_peers;
	int32_t min_peers;
	int32_t max_flows;
	int32_t min_flows;
};

struct abi_attr {
	struct abi_peers send;
	struct abi_peers recv;
	uint32_t op;
	uint32_t algo;
	uint32_t proto;
};

/* A part of a CollNet buffer: v9 and later. */
struct abi_part {
	void *mhandle;
	void *address;
	size_t size;
};

/* The tables, from version N to the next that changed them. */
#define ABI_MEMORY \
	int (*reg_mr)(void *comm, void *data, size_t size, int type, void **mhandle); \
	int (*reg_mr_dmabuf)(void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mhandle); \
	int (*dereg_mr)(void *comm, void *mhandle);

#define ABI_NET_END \
	int (*iflush)(void *comm, int n, void **data, int *sizes, void **mhandles, void **request); \
	int (*test)(void *request, int *done, int *sizes); \
	int (*close_send)(void *comm); \
	int (*close_recv)(void *comm); \
	int (*close_listen)(void *comm); \
	int (*get_device_mr)(void *comm, void *mhandle, void **device_mhandle); \
	int (*irecv_consumed)(void *comm, int n, void *request);

#define ABI_SEND_RECV_V10 \
	int (*isend)(void *comm, void *data, size_t size, int tag, void *mhandle, void *phandle, void **request); \
	int (*irecv)(void *comm, int n, void **data, size_t *sizes, int *tags, void **mhandles, void **phandles, \
		void **request);

#define ABI_NET_V11(PROPS, VDEVICE) \
	const char *name; \
	int (*init)(void **ctx, uint64_t id, struct abi_config *config, abi_log *log, abi_profile *profile); \
	int (*devices)(int *ndev); \
	int (*get_properties)(int dev, PROPS *props); \
	int (*listen)(void *ctx, int dev, void *handle, void **listen); \
	int (*connect)(void *ctx, int dev, void *handle, void **send, struct abi_device **device); \
	int (*accept)(void *listen, void **recv, struct abi_device **device); \
	ABI_MEMORY \
	ABI_SEND_RECV_V10 \
	ABI_NET_END \
	int (*make_vdevice)(int *dev, VDEVICE *props); \
	int (*finalize)(void *ctx); \
	int (*set_attr)(void *ctx, struct abi_attr *attr);

#define ABI_COLL_OPS(PART, COUNT) \
	int (*connect)(void *handles[], int nranks, int rank, void *listen, void **coll); \
	int (*reduce_support)(int type, int op, int *supported); \
	ABI_MEMORY \
	int (*iallreduce)(void *comm, void *send, void *recv, COUNT count, int type, int op, \
		void *send_mhandle, void *recv_mhandle, void **request); \
	int (*iallgather)(void *comm, void *send, int n, PART *parts, size_t bytes_per_rank, \
		size_t window_offset, size_t window_bytes, void *send_mhandle, void **request); \
	int (*ireduce_scatter)(void *comm, int n, PART *parts, void *recv, size_t bytes_per_rank, \
		size_t window_offset, size_t window_bytes, int type, int op, void *recv_mhandle, void **request); \
	int (*iflush)(void *comm, void *data, int size, void *mhandle, void **request); \
	int (*test)(void *request, int *done, int *size); \
	int (*close_coll)(void *comm); \
	int (*close_listen)(void *comm);

#define ABI_COLL_V9(PROPS, VDEVICE) \
	const char *name; \
	int (*init)(abi_log *log); \
	int (*devices)(int *ndev); \
	int (*get_properties)(int dev, PROPS *props); \
	int (*listen)(int dev, void *handle, void **listen); \
	ABI_COLL_OPS(struct abi_part, size_t) \
	int (*make_vdevice)(int *dev, VDEVICE *props);

#define ABI_COLL_V11(PROPS, VDEVICE) \
	const char *name; \
	int (*init)(void **ctx, uint64_t id, abi_log *log); \
	int (*devices)(int *ndev); \
	int (*get_properties)(int dev, PROPS *props); \
	int (*listen)(void *ctx, int dev, void *handle, void **listen); \
	ABI_COLL_OPS(struct abi_part, size_t) \
	int (*make_vdevice)(int *dev, VDEVICE *props); \
	int (*finalize)(void *ctx);

/* Tuners. The cost table is numAlgo rows of numProto floats, though its type says float **. */
struct abi_nvl_domains {		/* v5 and later */
	int domains;
	int min_ranks;
	int max_ranks;
};

struct abi_constants {			/* v5 and later: bandwidths in GB/s, latencies in us */
	double base_latencies[7][3];
	double hw_latencies[3][7][3];
	double ll_max[4][3];
	double ring_ll128_max[4][3];
	double tree_ll128_max[4][3];
	double tree_max[4][3];
	double nvls_tree_max[4][3];
};

#define ABI_TUNER_INFO_V4 \
	int (*get_info)(void *ctx, int func, size_t bytes, int pipe_ops, float **costs, \
		int algos, int protos, int registered, int *channels);

#define ABI_TUNER_V5 \
	const char *name; \
	int (*init)(void **ctx, uint64_t id, size_t nranks, size_t nnodes, abi_log *log, \
		struct abi_nvl_domains *domains, struct abi_constants *constants); \
	ABI_TUNER_INFO_V4 \
	int (*finalize)(void *ctx);

#endif
