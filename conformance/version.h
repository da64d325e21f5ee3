/* What a file abi_vN.c is made of. It holds all that is particular to version N: the declarations of
 * its tables and their layout, how the harness calls them, and, compiled once more with REFERENCE
 * for the reference plugin, that plugin's tables. Make finds the file, and library.c its versions. */
#ifndef VERSION_H
#define VERSION_H

#include <string.h>

#include "abi.h"

/* Size and offsets, as a compiled program printed them from NCCL's own headers (2.20.3 to 2.30.7,
 * x86-64). */
#define SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type)
#define AT(type, member, offset) _Static_assert(offsetof(struct type, member) == (offset), #type "." #member)

#define LAYOUT_PROPS_V9(type) \
	AT(type, guid, 16); \
	AT(type, ptr_support, 24); \
	AT(type, reg_is_global, 28); \
	AT(type, force_flush, 32); \
	AT(type, speed, 36); \
	AT(type, port, 40); \
	AT(type, latency, 44); \
	AT(type, max_comms, 48); \
	AT(type, max_recvs, 52); \
	AT(type, device_type, 56); \
	AT(type, device_version, 60); \
	AT(type, vdevice, 64)

#define LAYOUT_NET(type, bytes) \
	SIZE(type, bytes); \
	AT(type, name, 0); \
	AT(type, init, 8); \
	AT(type, devices, 16); \
	AT(type, get_properties, 24); \
	AT(type, listen, 32); \
	AT(type, connect, 40); \
	AT(type, accept, 48); \
	AT(type, reg_mr, 56); \
	AT(type, reg_mr_dmabuf, 64); \
	AT(type, dereg_mr, 72); \
	AT(type, isend, 80); \
	AT(type, irecv, 88); \
	AT(type, iflush, 96); \
	AT(type, test, 104); \
	AT(type, close_send, 112); \
	AT(type, close_recv, 120); \
	AT(type, close_listen, 128); \
	AT(type, get_device_mr, 136); \
	AT(type, irecv_consumed, 144)

#define LAYOUT_COLL(type, bytes) \
	SIZE(type, bytes); \
	AT(type, name, 0); \
	AT(type, init, 8); \
	AT(type, devices, 16); \
	AT(type, get_properties, 24); \
	AT(type, listen, 32); \
	AT(type, connect, 40); \
	AT(type, reduce_support, 48); \
	AT(type, reg_mr, 56); \
	AT(type, reg_mr_dmabuf, 64); \
	AT(type, dereg_mr, 72); \
	AT(type, iallreduce, 80); \
	AT(type, iallgather, 88); \
	AT(type, ireduce_scatter, 96); \
	AT(type, iflush, 104); \
	AT(type, test, 112); \
	AT(type, close_coll, 120); \
	AT(type, close_listen, 128)

#define LAYOUT_TUNER(type, bytes, last) \
	SIZE(type, bytes); \
	AT(type, name, 0); \
	AT(type, init, 8); \
	AT(type, get_info, 16); \
	AT(type, last, 24)

#ifdef REFERENCE
#include "reference.h"

#define EXPORT __attribute__((visibility("default")))

/* The reference plugin's tables have these alike. */
#define REF_NET(INIT, LISTEN, CONNECT, ISEND, IRECV) \
	.name = REF_NAME, .init = INIT, .devices = ref_devices, .get_properties = properties, .listen = LISTEN, \
	.connect = CONNECT, .accept = ref_net_accept, .reg_mr = ref_reg, .dereg_mr = ref_dereg, \
	.isend = ISEND, .irecv = IRECV, .iflush = ref_net_iflush, .test = ref_net_test, \
	.close_send = ref_net_close, .close_recv = ref_net_close, .close_listen = ref_close_listen

#define REF_COLL(INIT, LISTEN, ALLREDUCE, ALLGATHER, REDUCE_SCATTER) \
	.name = REF_NAME, .init = INIT, .devices = ref_devices, .get_properties = properties_coll, .listen = LISTEN, \
	.connect = ref_coll_connect, .reduce_support = ref_coll_reduce_support, .reg_mr = ref_reg, \
	.dereg_mr = ref_dereg, .iallreduce = ALLREDUCE, .iallgather = ALLGATHER, \
	.ireduce_scatter = REDUCE_SCATTER, .iflush = ref_coll_iflush, .test = ref_coll_test, \
	.close_coll = ref_coll_close, .close_listen = ref_close_listen

/* get_properties of net and CollNet, which must name the same device. ...: the fields of the
 * version beyond v8's. */
#define REF_PROPERTIES(...) \
	static int properties(int dev, struct props *p) \
	{ \
		if (dev != 0) \
			return ABI_INVALID_ARGUMENT; \
		*p = (struct props){ \
			.name = ref_device, .guid = 1, .ptr_support = ABI_PTR_HOST, .port = 1, .max_comms = 65536, \
			.speed = mutant("bad-properties") ? 0 : 10000, \
			.max_recvs = mutant("bad-properties") ? 0 : 1, __VA_ARGS__ \
		}; \
		return ABI_SUCCESS; \
	} \
	static int properties_coll(int dev, struct props *p) \
	{ \
		int rc = properties(dev, p); \
		if (rc == ABI_SUCCESS && mutant("coll-name")) \
			p->name = ref_other_device; \
		return rc; \
	}
#define REF_PROPS_V9 .vdevice = { 1, { 0 } }, .max_p2p_bytes = REF_MAX_BYTES, .max_coll_bytes = REF_MAX_BYTES

#else
#include "library.h"

/* A version of an interface: the pointer to its table, and how the calls are made of that. */
#define VERSION(kind, type, number, symbol, pointer, ...) \
	static void read_##symbol(void *calls, const void *table) \
	{ \
		pointer = table; \
		*(struct type *)calls = (struct type){ __VA_ARGS__ }; \
	} \
	static struct version version_##symbol = { kind, number, #symbol, read_##symbol, NULL }; \
	__attribute__((constructor)) static void register_##symbol(void) { version_register(&version_##symbol); }
#define NET_VERSION(number, ...) \
	VERSION(NET, net_calls, number, ncclNetPlugin_v##number, net, __VA_ARGS__)
#define COLL_VERSION(number, ...) \
	VERSION(COLL, coll_calls, number, ncclCollNetPlugin_v##number, coll, __VA_ARGS__)
#define TUNER_VERSION(number, pointer, ...) \
	VERSION(TUNER, tuner_calls, number, ncclTunerPlugin_v##number, pointer, __VA_ARGS__)

/* The members that the harness's calls take over as they are: from all versions, and from v11 on. */
#define NET_ALIKE(t) \
	.devices = (t)->devices, .accept = (t)->accept, .reg_mr = (t)->reg_mr, .dereg_mr = (t)->dereg_mr, \
	.iflush = (t)->iflush, .test = (t)->test, .close_send = (t)->close_send, .close_recv = (t)->close_recv, \
	.close_listen = (t)->close_listen, .irecv_consumed = (t)->irecv_consumed
#define NET_ALIKE_V11(t) \
	NET_ALIKE(t), .init = (t)->init, .listen = (t)->listen, .connect = (t)->connect, .isend = (t)->isend, \
	.irecv = (t)->irecv, .finalize = (t)->finalize, .set_attr = (t)->set_attr, .contexts = true, .profiles = true
#define COLL_ALIKE(t) \
	.devices = (t)->devices, .connect = (t)->connect, .reduce_support = (t)->reduce_support, \
	.reg_mr = (t)->reg_mr, .dereg_mr = (t)->dereg_mr, .iflush = (t)->iflush, .test = (t)->test, \
	.close_coll = (t)->close_coll, .close_listen = (t)->close_listen
#define COLL_DATA_V9(t) \
	.iallreduce = (t)->iallreduce, .iallgather = (t)->iallgather, .ireduce_scatter = (t)->ireduce_scatter
#define COLL_ALIKE_V11(t) \
	COLL_ALIKE(t), COLL_DATA_V9(t), .init = (t)->init, .listen = (t)->listen, .finalize = (t)->finalize, \
	.contexts = true

/* get_properties of net and CollNet, by way of struct props of the version. ...: the fields
 * beyond v8's, or NCCL's assumptions for fields that it lacks. */
#define PROPERTIES(...) \
	static int read_properties(int (*get)(int, struct props *), int dev, struct abi_props *to) \
	{ \
		struct props p; \
		int result; \
		memset(&p, PROPS_POISON, sizeof(p)); \
		result = get(dev, &p); \
		*to = (struct abi_props){ \
			.name = p.name, .pci_path = p.pci_path, .guid = p.guid, .ptr_support = p.ptr_support, \
			.reg_is_global = p.reg_is_global, .speed = p.speed, .port = p.port, .latency = p.latency, \
			.max_comms = p.max_comms, .max_recvs = p.max_recvs, .device_type = p.device_type, \
			.device_version = p.device_version, __VA_ARGS__ \
		}; \
		return result; \
	} \
	static int properties(int dev, struct abi_props *to) { return read_properties(net->get_properties, dev, to); } \
	static int properties_coll(int dev, struct abi_props *to) { return read_properties(coll->get_properties, dev, to); }
#define PROPS_V9 \
	.force_flush = p.force_flush, .vdevice = { .ndevs = p.vdevice.ndevs }, .max_p2p_bytes = p.max_p2p_bytes, \
	.max_coll_bytes = p.max_coll_bytes

/* Up to v10 there are no contexts: listen, init of CollNet; up to v9 init and connect. */
#define NO_CONTEXTS \
	static int listen(void *ctx, int dev, void *handle, void **comm) \
	{ \
		(void)ctx; \
		return net->listen(dev, handle, comm); \
	} \
	static int init_coll(void **ctx, uint64_t id, abi_log *log) \
	{ \
		(void)ctx, (void)id; \
		return coll->init(log); \
	} \
	static int listen_coll(void *ctx, int dev, void *handle, void **comm) \
	{ \
		(void)ctx; \
		return coll->listen(dev, handle, comm); \
	}
#define NO_CONTEXTS_V9 \
	static int init(void **ctx, uint64_t id, struct abi_config *config, abi_log *log, abi_profile *profile) \
	{ \
		(void)ctx, (void)id, (void)config, (void)profile; \
		return net->init(log); \
	} \
	static int connect(void *ctx, int dev, void *handle, void **send, struct abi_device **device) \
	{ \
		(void)ctx; \
		return net->connect(dev, handle, send, device); \
	}
/* Tuners up to v4 are not told the communicator. */
#define TUNER_INIT_V2(name, t) \
	static int name(void **ctx, uint64_t id, size_t nranks, size_t nnodes, abi_log *log, \
		struct abi_nvl_domains *domains, struct abi_constants *constants) \
	{ \
		(void)id, (void)domains, (void)constants; \
		return (t)->init(nranks, nnodes, log, ctx); \
	}

#endif
#endif
