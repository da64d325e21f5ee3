/* plugin.h: the common part of the tables of all ABI versions, in the shape of the
 * newest. abi_vN.c adapts it to version N. Every function may be given anything: a value that it
 * cannot use is an error with a line in NCCL's log, never a crash.
 */
#ifndef MCAST_PLUGIN_H
#define MCAST_PLUGIN_H

#include <stdbool.h>
#include <stdlib.h>

#include "abi.h"
#include "fork.h"

/* The plugin's name: NCCL_NET_PLUGIN=mcast, NCCL_NET=mcast. */
#define PLUGIN_NAME "mcast"

/* Symbols that the library shows. All others are hidden: exports.map. */
#define EXPORT __attribute__((visibility("default"), used))

/* A communicator's id, and its profiler (or NULL): NCCL passes both from v11 on. */
struct context {
	uint64_t comm_id;
	nccl_profiler profiler;
};

/* Bounds of one message and of one window, in bytes: NCCL cuts larger ones. */
#define MAX_P2P_BYTES ((size_t)1 << 30) /* test tells sizes as int */
#define MAX_COLL_BYTES ((size_t)1 << 30)

/* device.c. A device as Go describes it; its strings last as long as the library. */
struct device {
	const char *name, *pci_path;
	uint64_t guid;
	int speed; /* Mbit/s */
	int ptr_support;
};
nccl_result plugin_init(nccl_logger log);
nccl_result context_init(void **ctx, uint64_t comm_id, nccl_logger log);
nccl_result context_finalize(void *ctx);
nccl_result net_devices(int *count);
nccl_result coll_devices(int *count);
nccl_result properties_v8(int dev, struct props_v8 *props);
nccl_result properties_v9(int dev, struct props_v9 *props);
nccl_result properties_v11(int dev, struct props_v11 *props);
nccl_result properties_v12(int dev, struct props_v12 *props);
nccl_result coll_properties_v8(int dev, struct props_v8 *props);
nccl_result coll_properties_v9(int dev, struct props_v9 *props);
nccl_result coll_properties_v11(int dev, struct props_v11 *props);
nccl_result coll_properties_v12(int dev, struct props_v12 *props);

/* log.c */
void plugin_log(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));
nccl_result plugin_refuse(nccl_result result, const char *format, ...) __attribute__((format(printf, 2, 3)));
void plugin_log_to(nccl_logger log);
void plugin_log_line(int level, const char *line);
/* NOT_IN_A_FORK stands first in each function that enters Go or touches a connection. */
#define NOT_IN_A_FORK(CALL) \
	do { \
		if (mcast_forked()) \
			return plugin_refuse(NCCL_INVALID_USAGE, "%s: this process is a fork of the one that loaded the library", CALL); \
	} while (0)
#define INFO(...) plugin_log(NCCL_LOG_INFO, __VA_ARGS__)

/* memory.c. A region is what regMr returns. */
struct region {
	uintptr_t base;  /* the address that NCCL uses */
	size_t size;
	ptrdiff_t shift; /* from base to the CPU's address of the memory */
	int64_t handle;  /* of the registration */
	void *device;    /* RDMA device (p2p_device_of) that it is registered with; NULL: the CPU moves the bytes */
	uint32_t local, remote; /* keys of that registration */
	bool gpu;        /* memory of a GPU */
};
/* comm: a comm of net; NULL for memory that the CPU moves. */
nccl_result memory_register(void *comm, void *data, size_t size, int type, void **mhandle);
nccl_result memory_register_dmabuf(void *comm, void *data, size_t size, int type, uint64_t offset, int fd,
	void **mhandle);
nccl_result memory_deregister(void *comm, void *mhandle);

/* memory_at sets *at to the CPU's address of size bytes of a buffer. For memory of the host that
 * came without a registration this is the same address. */
static inline bool memory_at(const struct region *r, void *data, size_t size, void **at)
{
	if (r != NULL && size > 0) {
		uintptr_t offset = (uintptr_t)data - r->base;

		if (offset > r->size || size > r->size - offset)
			return false;
		data = (char *)data + r->shift;
	}
	*at = data;
	return true;
}
nccl_result memory_outside(const struct region *r, const void *data, size_t size, const char *call);

/* net.c: point to point. A comm is a struct p2p_comm. */
nccl_result net_listen(void *ctx, int dev, void *handle, void **listen_comm);
nccl_result net_connect(void *ctx, int dev, void *handle, void **send_comm, struct device_handle **device);
nccl_result net_accept(void *listen_comm, void **recv_comm, struct device_handle **device);
nccl_result net_isend(void *send_comm, void *data, size_t size, int tag, void *mhandle, void *phandle, void **request);
nccl_result net_irecv(void *recv_comm, int n, void **data, size_t *sizes, int *tags, void **mhandles, void **phandles,
	void **request);
nccl_result net_iflush(void *recv_comm, int n, void **data, int *sizes, void **mhandles, void **request);
nccl_result net_test(void *request, int *done, int *sizes);
nccl_result net_close(void *comm);
nccl_result net_close_listen(void *listen_comm);
nccl_result net_attr(void *ctx, struct net_attr *attr);
void net_profiler_v10(nccl_profiler profiler); /* for connections without a context */

/* coll.c: CollNet */
nccl_result coll_listen(void *ctx, int dev, void *handle, void **listen_comm);
nccl_result coll_connect(void *handles[], int nranks, int rank, void *listen_comm, void **coll_comm);
nccl_result coll_reduce_support(int dtype, int op, int *supported);
nccl_result coll_iallreduce(void *coll_comm, void *send, void *recv, size_t count, int dtype, int op,
	void *send_mhandle, void *recv_mhandle, void **request);
nccl_result coll_iallgather(void *coll_comm, void *send, int parts, struct sge_v9 *recv_parts, size_t bytes_per_rank,
	size_t window_offset, size_t window_bytes, void *send_mhandle, void **request);
nccl_result coll_ireducescatter(void *coll_comm, int parts, struct sge_v9 *send_parts, void *recv,
	size_t bytes_per_rank,
	size_t window_offset, size_t window_bytes, int dtype, int op, void *recv_mhandle, void **request);
nccl_result coll_register(void *coll_comm, void *data, size_t size, int type, void **mhandle);
nccl_result coll_register_dmabuf(void *coll_comm, void *data, size_t size, int type, uint64_t offset, int fd,
	void **mhandle);
nccl_result coll_deregister(void *coll_comm, void *mhandle);
nccl_result coll_iflush(void *coll_comm, void *data, int size, void *mhandle, void **request);
nccl_result coll_test(void *request, int *done, int *size);
nccl_result coll_close(void *coll_comm);
nccl_result coll_close_listen(void *listen_comm);

/* What the ranks of a CollNet connection have agreed upon in its connect, for the tuner. */
struct coll_agreed {
	bool switched;  /* a switch answers all of them */
	bool paired;    /* another communicator of the same ranks has CollNet: see connected.c */
	bool multicast; /* multicast reaches all of them */
	bool alike;     /* all nodes have an NVSwitch, or none has */
	bool direct;    /* NCCL may hand over users' buffers: MCAST_GPU_MEMORY */
};

/* What a CollNet connect brings. */
struct coll_made {
	int64_t group;
	bool drives;      /* test moves bytes */
	uint64_t key;     /* of the connection, the same on all ranks, as that of no other */
	uint64_t members; /* stands for the devices of all ranks, in order, and for this rank */
	struct coll_agreed agreed;
};

/* nvswitch.c: whether NCCL will see an NVSwitch on this node. */
bool nvswitch_seen(void);

struct tuner;

/* tuner_rule.c: which operations CollNet is to have. */
struct tuner_facts {
	size_t nodes;
	bool several; /* GPUs a node */
	struct coll_agreed agreed;
	bool chunks;     /* NCCL asks for the size of windows: v6 */
	size_t inflight; /* bytes of a communicator that NCCL can have in flight at once */
	long long from[5]; /* MCAST_TUNER_*, in bytes, by ncclFunc_t; 0: never; negative: see the table of rules */
};
/* tuner.c: those of a communicator now. */
struct tuner_facts tuner_facts_now(const struct tuner *t);
bool tuner_wins(const struct tuner_facts *f, int func, size_t bytes, bool registered);
bool tuner_loses(const struct tuner_facts *f, int func, size_t bytes, bool registered);
size_t tuner_from(const struct tuner_facts *f, int func);
size_t tuner_in_flight(const struct tuner_facts *f, int func);
void tuner_say_rule(const struct tuner_facts *f, bool alone);

/* tuner.c, as v5 and later have it. */
nccl_result tuner_init_v5(void **ctx, uint64_t comm_id, size_t ranks, size_t nodes, nccl_logger log, void *domains,
	void *constants);
nccl_result tuner_costs(void *ctx, int func, size_t bytes, int ops, float **costs, int algorithms, int protocols,
	int registered, int *channels);
nccl_result tuner_destroy(void *ctx);
nccl_result tuner_init_v6(void **ctx, uint64_t comm_id, size_t ranks, size_t nodes, nccl_logger log, void *domains,
	void *constants);
nccl_result tuner_chunk(void *ctx, int func, size_t bytes, int algorithm, int protocol, int channels, size_t *chunk);

/* connected.c: which communicators have CollNet, for the tuner. */
struct connected;
struct connected *connected_add(uint64_t comm_id, int nodes, const struct coll_made *made);
void connected_confirm(void);
bool connected_confirmed(void);
void connected_registered(struct connected *c, size_t size);
void connected_remove(struct connected *c);
struct connected *connected_claim(uint64_t comm_id, size_t nodes, struct coll_agreed *agreed, size_t *region);
void connected_release(struct connected *c);
bool connected_still(const struct connected *c);
struct connected *connected_hold(uint64_t members, uint64_t *key, uint64_t *asked);
void connected_let_go(struct connected *c, bool pair, bool unsure);
nccl_result connected_asked(struct connected *c, int func, size_t bytes, bool *pair);
bool connected_paired(struct connected *c);
void connected_window(struct connected *c, int func);
uint64_t connected_windows(struct connected *c, int func);

/* profiler.c: whether NCCL's profiler is this library, and wants the events of net plugins. */
bool profiler_asks(void);

/* abi_v8.c: up to v10 there are no contexts. */
nccl_result net_listen_v8(int dev, void *handle, void **listen_comm);
nccl_result net_connect_v8(int dev, void *handle, void **send_comm, struct device_handle **device);
nccl_result coll_listen_v8(int dev, void *handle, void **listen_comm);

/* abi_v11.c */
nccl_result net_init_v11(void **ctx, uint64_t comm_id, struct comm_config *config, nccl_logger log,
	nccl_profiler profiler);

/* The same in the tables of all versions; by name, so that members may stand anywhere. */
#define NET_ALIKE \
	.name = PLUGIN_NAME, .devices = net_devices, .accept = net_accept, \
	.regMr = memory_register, .regMrDmaBuf = memory_register_dmabuf, .deregMr = memory_deregister, \
	.iflush = net_iflush, .test = net_test, \
	.closeSend = net_close, .closeRecv = net_close, .closeListen = net_close_listen
#define COLL_ALIKE \
	.name = PLUGIN_NAME, .devices = coll_devices, .connect = coll_connect, .reduceSupport = coll_reduce_support, \
	.regMr = coll_register, .regMrDmaBuf = coll_register_dmabuf, .deregMr = coll_deregister, \
	.iflush = coll_iflush, .test = coll_test, .closeColl = coll_close, .closeListen = coll_close_listen
#define COLL_DATA_ALIKE \
	.iallreduce = coll_iallreduce, .iallgather = coll_iallgather, .ireducescatter = coll_ireducescatter

#endif
