/* abi.h: NCCL's plugin ABI, net and CollNet v8 to v12, tuner v1 to v6, profiler v4 and v5, in our
 * own words. Versions and the first NCCL that has them: net v8 2.20.3, v9
 * 2.24.3, v10 2.26.2, v11 2.28.3, v12 2.30.3; tuner v1 2.20, v2 2.21.5, v3 2.22.3, v4
 * 2.24.3, v5 2.28.3, v6 2.30.3. Members, order, sizes and offsets were compared
 * with the headers at all those tags; once declared a version never changed.
 * The assertions hold what must not move (x86-64 and arm64 alike: LP64).
 */
#ifndef NCCL_ABI_H
#define NCCL_ABI_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

/* ncclResult_t */
typedef enum {
	NCCL_SUCCESS = 0, NCCL_SYSTEM_ERROR = 2, NCCL_INTERNAL_ERROR = 3, NCCL_INVALID_ARGUMENT = 4,
	NCCL_INVALID_USAGE = 5, NCCL_REMOTE_ERROR = 6
} nccl_result;

/* ncclDebugLogLevel and the subsystems that a log line is about. */
enum { NCCL_LOG_WARN = 2, NCCL_LOG_INFO = 3, NCCL_LOG_TRACE = 5 };
enum { NCCL_SUBSYS_INIT = 1, NCCL_SUBSYS_NET = 16, NCCL_SUBSYS_TUNING = 64 };

enum {
	NCCL_HANDLE_BYTES = 128, /* of a listen's handle */
	NCCL_REQUESTS = 32,      /* in flight on a comm */
	NCCL_PTR_HOST = 1, NCCL_PTR_CUDA = 2, NCCL_PTR_DMABUF = 4,
	NCCL_ID_UNDEFINED = -1
};

typedef void (*nccl_logger)(int level, unsigned long subsystems, const char *file, int line, const char *format, ...)
	__attribute__((format(printf, 5, 6)));

/* A net plugin tells NCCL's profiler of a message by this call, v10 and later. parent: came with isend or irecv.
 * *event is NULL before START, and after it too if no profiler wants the event. NCCL 2.26 takes any type but START
 * for STOP. */
typedef nccl_result (*nccl_profiler)(void **event, int type, void *parent, int64_t plugin, void *data);
enum { NCCL_NET_EVENT_START = 0, NCCL_NET_EVENT_STOP = 1, NCCL_NET_EVENT_UPDATE = 2,
	NCCL_NET_EVENT_UPDATE_AND_STOP = 3 };

/* What one piece of a collective's buffer is. */
struct sge_v8 { void *mhandle; void *address; uint32_t size; };
struct sge_v9 { void *mhandle; void *address; size_t size; };
static_assert(sizeof(struct sge_v8) == 24 && sizeof(struct sge_v9) == 24, "ncclNetSGE");

/* Device properties. Strings stay the plugin's. speed: Mbit/s; latency: us. */
struct props_v8 {
	const char *name, *pci_path;
	uint64_t guid;
	int ptr_support, reg_is_global, speed, port;
	float latency;
	int max_comms, max_recvs, device_type, device_version;
};
static_assert(sizeof(struct props_v8) == 64 && offsetof(struct props_v8, speed) == 32, "ncclNetProperties_v8");

struct vprops_v9 { int count, devices[4]; };

struct props_v9 { /* and v10 */
	const char *name, *pci_path;
	uint64_t guid;
	int ptr_support, reg_is_global, force_flush, speed, port;
	float latency;
	int max_comms, max_recvs, device_type, device_version;
	struct vprops_v9 vprops;
	size_t max_p2p_bytes, max_coll_bytes;
};
static_assert(sizeof(struct props_v9) == 104 && offsetof(struct props_v9, vprops) == 64 &&
	offsetof(struct props_v9, max_p2p_bytes) == 88, "ncclNetProperties_v9, _v10");

struct props_v11 {
	struct props_v9 v9;
	int max_multi_request;
};
static_assert(sizeof(struct props_v11) == 112 &&
	offsetof(struct props_v11, max_multi_request) == 104, "ncclNetProperties_v11");

struct vprops_v12 { int count, devices[8]; };

struct props_v12 {
	const char *name, *pci_path;
	uint64_t guid;
	int ptr_support, reg_is_global, force_flush, speed, port;
	float latency;
	int max_comms, max_recvs, device_type, device_version;
	struct vprops_v12 vprops;
	size_t max_p2p_bytes, max_coll_bytes;
	int max_multi_request;
	int16_t rail, plane;
};
static_assert(sizeof(struct props_v12) == 128 && offsetof(struct props_v12, max_p2p_bytes) == 104 &&
	offsetof(struct props_v12, max_multi_request) == 120 &&
	offsetof(struct props_v12, plane) == 126, "ncclNetProperties_v12");

struct comm_config { int traffic_class; }; /* v10 and later */
struct comm_attr { int32_t max_peers, min_peers, max_flows, min_flows; };
struct net_attr { struct comm_attr send, recv; uint32_t op, algo, proto; }; /* v11 and later */
static_assert(sizeof(struct net_attr) == 44 && offsetof(struct net_attr, op) == 32, "ncclNetAttr");

struct device_handle; /* of device offload; we offer none */

/* The members that net tables of all versions share, by where they stand. */
#define NET_MEMORY \
	nccl_result (*regMr)(void *comm, void *data, size_t size, int type, void **mhandle); \
	nccl_result (*regMrDmaBuf)(void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mhandle); \
	nccl_result (*deregMr)(void *comm, void *mhandle);
#define NET_END \
	nccl_result (*iflush)(void *recv_comm, int n, void **data, int *sizes, void **mhandles, void **request); \
	nccl_result (*test)(void *request, int *done, int *sizes); \
	nccl_result (*closeSend)(void *send_comm); \
	nccl_result (*closeRecv)(void *recv_comm); \
	nccl_result (*closeListen)(void *listen_comm); \
	nccl_result (*getDeviceMr)(void *comm, void *mhandle, void **device_mhandle); \
	nccl_result (*irecvConsumed)(void *recv_comm, int n, void *request);

struct net_v8 {
	const char *name;
	nccl_result (*init)(nccl_logger log);
	nccl_result (*devices)(int *count);
	nccl_result (*getProperties)(int dev, struct props_v8 *props);
	nccl_result (*listen)(int dev, void *handle, void **listen_comm);
	nccl_result (*connect)(int dev, void *handle, void **send_comm, struct device_handle **device);
	nccl_result (*accept)(void *listen_comm, void **recv_comm, struct device_handle **device);
	NET_MEMORY
	nccl_result (*isend)(void *send_comm, void *data, int size, int tag, void *mhandle, void **request);
	nccl_result (*irecv)(void *recv_comm, int n, void **data, int *sizes, int *tags, void **mhandles, void **request);
	NET_END
};
static_assert(sizeof(struct net_v8) == 152 && offsetof(struct net_v8, isend) == 80 &&
	offsetof(struct net_v8, test) == 104, "ncclNet_v8");

struct net_v9 {
	const char *name;
	nccl_result (*init)(nccl_logger log);
	nccl_result (*devices)(int *count);
	nccl_result (*getProperties)(int dev, struct props_v9 *props);
	nccl_result (*listen)(int dev, void *handle, void **listen_comm);
	nccl_result (*connect)(int dev, void *handle, void **send_comm, struct device_handle **device);
	nccl_result (*accept)(void *listen_comm, void **recv_comm, struct device_handle **device);
	NET_MEMORY
	nccl_result (*isend)(void *send_comm, void *data, size_t size, int tag, void *mhandle, void **request);
	nccl_result (*irecv)(void *recv_comm, int n, void **data, size_t *sizes, int *tags, void **mhandles, void **request);
	NET_END
	nccl_result (*makeVDevice)(int *dev, struct vprops_v9 *props);
};
static_assert(sizeof(struct net_v9) == 160 && offsetof(struct net_v9, makeVDevice) == 152, "ncclNet_v9");

struct net_v10 {
	const char *name;
	nccl_result (*init)(nccl_logger log, nccl_profiler profiler);
	nccl_result (*devices)(int *count);
	nccl_result (*getProperties)(int dev, struct props_v9 *props);
	nccl_result (*listen)(int dev, void *handle, void **listen_comm);
	nccl_result (*connect)(int dev, struct comm_config *config, void *handle, void **send_comm,
		struct device_handle **device);
	nccl_result (*accept)(void *listen_comm, void **recv_comm, struct device_handle **device);
	NET_MEMORY
	nccl_result (*isend)(void *send_comm, void *data, size_t size, int tag, void *mhandle, void *phandle, void **request);
	nccl_result (*irecv)(void *recv_comm, int n, void **data, size_t *sizes, int *tags, void **mhandles, void **phandles,
		void **request);
	NET_END
	nccl_result (*makeVDevice)(int *dev, struct vprops_v9 *props);
};
static_assert(sizeof(struct net_v10) == 160 && offsetof(struct net_v10, connect) == 40, "ncclNet_v10");

/* v11 and v12 differ in their properties alone. */
#define NET_V11(PROPS, VPROPS) { \
	const char *name; \
	nccl_result (*init)(void **ctx, uint64_t comm_id, struct comm_config *config, nccl_logger log, \
		nccl_profiler profiler); \
	nccl_result (*devices)(int *count); \
	nccl_result (*getProperties)(int dev, struct PROPS *props); \
	nccl_result (*listen)(void *ctx, int dev, void *handle, void **listen_comm); \
	nccl_result (*connect)(void *ctx, int dev, void *handle, void **send_comm, struct device_handle **device); \
	nccl_result (*accept)(void *listen_comm, void **recv_comm, struct device_handle **device); \
	NET_MEMORY \
	nccl_result (*isend)(void *send_comm, void *data, size_t size, int tag, void *mhandle, void *phandle, \
		void **request); \
	nccl_result (*irecv)(void *recv_comm, int n, void **data, size_t *sizes, int *tags, void **mhandles, \
		void **phandles, void **request); \
	NET_END \
	nccl_result (*makeVDevice)(int *dev, struct VPROPS *props); \
	nccl_result (*finalize)(void *ctx); \
	nccl_result (*setNetAttr)(void *ctx, struct net_attr *attr); \
}
struct net_v11 NET_V11(props_v11, vprops_v9);
struct net_v12 NET_V11(props_v12, vprops_v12);
static_assert(sizeof(struct net_v11) == 176 && sizeof(struct net_v12) == 176 &&
	offsetof(struct net_v12, finalize) == 160, "ncclNet_v11, _v12");

/* CollNet. dtype and op are ncclDataType_t and ncclRedOp_t. */
#define COLL_CONNECT \
	nccl_result (*connect)(void *handles[], int nranks, int rank, void *listen_comm, void **coll_comm); \
	nccl_result (*reduceSupport)(int dtype, int op, int *supported); \
	NET_MEMORY
#define COLL_DATA(COUNT, SGE) \
	nccl_result (*iallreduce)(void *coll_comm, void *send, void *recv, COUNT count, int dtype, int op, \
		void *send_mhandle, void *recv_mhandle, void **request); \
	nccl_result (*iallgather)(void *coll_comm, void *send, int parts, struct SGE *recv_parts, size_t bytes_per_rank, \
		size_t window_offset, size_t window_bytes, void *send_mhandle, void **request); \
	nccl_result (*ireducescatter)(void *coll_comm, int parts, struct SGE *send_parts, void *recv, size_t bytes_per_rank, \
		size_t window_offset, size_t window_bytes, int dtype, int op, void *recv_mhandle, void **request); \
	nccl_result (*iflush)(void *coll_comm, void *data, int size, void *mhandle, void **request); \
	nccl_result (*test)(void *request, int *done, int *size); \
	nccl_result (*closeColl)(void *coll_comm); \
	nccl_result (*closeListen)(void *listen_comm);

struct coll_v8 {
	const char *name;
	nccl_result (*init)(nccl_logger log);
	nccl_result (*devices)(int *count);
	nccl_result (*getProperties)(int dev, struct props_v8 *props);
	nccl_result (*listen)(int dev, void *handle, void **listen_comm);
	COLL_CONNECT
	COLL_DATA(int, sge_v8)
};
static_assert(sizeof(struct coll_v8) == 136 && offsetof(struct coll_v8, test) == 112, "ncclCollNet_v8");

struct coll_v9 { /* and v10 */
	const char *name;
	nccl_result (*init)(nccl_logger log);
	nccl_result (*devices)(int *count);
	nccl_result (*getProperties)(int dev, struct props_v9 *props);
	nccl_result (*listen)(int dev, void *handle, void **listen_comm);
	COLL_CONNECT
	COLL_DATA(size_t, sge_v9)
	nccl_result (*makeVDevice)(int *dev, struct vprops_v9 *props);
};
static_assert(sizeof(struct coll_v9) == 144 && offsetof(struct coll_v9, makeVDevice) == 136, "ncclCollNet_v9, _v10");

#define COLL_V11(PROPS, VPROPS) { \
	const char *name; \
	nccl_result (*init)(void **ctx, uint64_t comm_id, nccl_logger log); \
	nccl_result (*devices)(int *count); \
	nccl_result (*getProperties)(int dev, struct PROPS *props); \
	nccl_result (*listen)(void *ctx, int dev, void *handle, void **listen_comm); \
	COLL_CONNECT \
	COLL_DATA(size_t, sge_v9) \
	nccl_result (*makeVDevice)(int *dev, struct VPROPS *props); \
	nccl_result (*finalize)(void *ctx); \
}
struct coll_v11 COLL_V11(props_v11, vprops_v9);
struct coll_v12 COLL_V11(props_v12, vprops_v12);
static_assert(sizeof(struct coll_v11) == 152 && sizeof(struct coll_v12) == 152 &&
	offsetof(struct coll_v12, finalize) == 144, "ncclCollNet_v11, _v12");

/* Tuner. A table of costs (us, below 0: not to be had) has a row an algorithm and a column a
 * protocol; it is declared as float ** and is float[algorithms][protocols]. */
enum { NCCL_ALLGATHER = 2, NCCL_REDUCE_SCATTER = 3, NCCL_ALLREDUCE = 4 };           /* ncclFunc_t */
enum { NCCL_ALGO_COLLNET_DIRECT = 2, NCCL_ALGO_COLLNET_CHAIN = 3, NCCL_ALGO_NVLS = 4, NCCL_PROTO_SIMPLE = 2 };

struct tuner_v1 { /* 2.20 alone */
	const char *name;
	nccl_result (*init)(size_t ranks, size_t nodes, nccl_logger log);
	nccl_result (*getCollInfo)(int func, size_t bytes, int collnet, int nvls, int ops, int *algorithm, int *protocol,
		int *channels);
	nccl_result (*destroy)(void);
};

struct tuner_v2 {
	const char *name;
	nccl_result (*init)(size_t ranks, size_t nodes, nccl_logger log, void **ctx);
	nccl_result (*getCollInfo)(void *ctx, int func, size_t bytes, int collnet, int nvls, int ops,
		int *algorithm, int *protocol, int *channels);
	nccl_result (*destroy)(void *ctx);
};

struct tuner_v3 {
	const char *name;
	nccl_result (*init)(size_t ranks, size_t nodes, nccl_logger log, void **ctx);
	nccl_result (*getCollInfo)(void *ctx, int func, size_t bytes, int ops, float **costs, int algorithms, int protocols,
		int *channels);
	nccl_result (*destroy)(void *ctx);
};

struct tuner_v4 {
	const char *name;
	nccl_result (*init)(size_t ranks, size_t nodes, nccl_logger log, void **ctx);
	nccl_result (*getCollInfo)(void *ctx, int func, size_t bytes, int ops, float **costs, int algorithms, int protocols,
		int registered, int *channels);
	nccl_result (*destroy)(void *ctx);
};

struct tuner_v5 {
	const char *name;
	nccl_result (*init)(void **ctx, uint64_t comm_id, size_t ranks, size_t nodes, nccl_logger log, void *domains,
		void *constants);
	nccl_result (*getCollInfo)(void *ctx, int func, size_t bytes, int ops, float **costs, int algorithms, int protocols,
		int registered, int *channels);
	nccl_result (*finalize)(void *ctx);
};

struct tuner_v6 {
	const char *name;
	nccl_result (*init)(void **ctx, uint64_t comm_id, size_t ranks, size_t nodes, nccl_logger log, void *domains,
		void *constants);
	nccl_result (*getCollInfo)(void *ctx, int func, size_t bytes, int ops, float **costs, int algorithms, int protocols,
		int registered, int *channels);
	nccl_result (*finalize)(void *ctx);
	nccl_result (*getChunkSize)(void *ctx, int func, size_t bytes, int algorithm, int protocol, int channels,
		size_t *chunk);
};
static_assert(sizeof(struct tuner_v1) == 32 && sizeof(struct tuner_v4) == 32 && sizeof(struct tuner_v5) == 32 &&
	sizeof(struct tuner_v6) == 40, "ncclTuner");

/* Profiler: v4 (NCCL 2.27) and v5 (2.28); 2.30 takes v5 as well. Types of events, and states of recordEventState: a
 * proxy's operation comes to its turn; a net plugin's event is told anew. */
enum {
	NCCL_PROFILE_GROUP = 1 << 0, NCCL_PROFILE_COLL = 1 << 1, NCCL_PROFILE_P2P = 1 << 2, NCCL_PROFILE_PROXY_OP = 1 << 3,
	NCCL_PROFILE_PROXY_STEP = 1 << 4, NCCL_PROFILE_NET = 1 << 7,
	NCCL_PROFILE_PROXY_TURN = 19, NCCL_PROFILE_NET_UPDATE = 21
};

struct profiler_event { /* v5, as far as both have it alike; in v4 the type is one byte */
	uint64_t type;
	void *parent;
	int rank;
	union {
		struct {
			uint64_t sequence;
			const char *function;
			const void *send;
			void *recv;
			size_t count;
			int root;
			const char *type;
			uint8_t channels, warps;
			const char *algorithm, *protocol;
		} coll;
		struct {
			const char *function;
			void *buffer;
			const char *type;
			size_t count;
			int peer;
			uint8_t channels;
		} p2p;
		struct {
			int pid; /* of the process whose operation it is */
			uint8_t channel;
			int peer, steps, chunk, sends;
		} proxy;
		struct { int64_t id; void *data; } net;
	};
};
static_assert(offsetof(struct profiler_event, coll) == 24 && offsetof(struct profiler_event, coll.count) == 56 &&
	offsetof(struct profiler_event, coll.protocol) == 96 && offsetof(struct profiler_event, p2p.peer) == 56 &&
	offsetof(struct profiler_event, proxy.peer) == 32, "ncclProfilerEventDescr_v4, _v5");

union profiler_state {
	struct { void *data; } net;
	uint64_t others;
};

#define PROFILER_ALIKE \
	nccl_result (*startEvent)(void *ctx, void **handle, struct profiler_event *event); \
	nccl_result (*stopEvent)(void *handle); \
	nccl_result (*recordEventState)(void *handle, int state, union profiler_state *args); \
	nccl_result (*finalize)(void *ctx);

struct profiler_v4 {
	const char *name;
	nccl_result (*init)(void **ctx, int *events, const char *comm_name, uint64_t comm_id, int nodes, int ranks, int rank,
		nccl_logger log);
	PROFILER_ALIKE
};

struct profiler_v5 {
	const char *name;
	nccl_result (*init)(void **ctx, uint64_t comm_id, int *events, const char *comm_name, int nodes, int ranks, int rank,
		nccl_logger log);
	PROFILER_ALIKE
};

#endif
