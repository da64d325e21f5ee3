/* Nothing but assertions: size and offsets of abi.h, as a compiled program
 * printed them from NCCL's own headers (2.20.3 to 2.30.7, x86-64). */
#include "abi.h"

#define SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type)
#define AT(type, member, offset) _Static_assert(offsetof(struct type, member) == (offset), #type "." #member)

SIZE(abi_device, 32);
AT(abi_device, handle, 8);
AT(abi_device, needs_progress, 24);
SIZE(abi_vdevice_v9, 20);
SIZE(abi_vdevice_v12, 36);

SIZE(abi_props_v8, 64);
AT(abi_props_v8, guid, 16);
AT(abi_props_v8, ptr_support, 24);
AT(abi_props_v8, reg_is_global, 28);
AT(abi_props_v8, speed, 32);
AT(abi_props_v8, port, 36);
AT(abi_props_v8, latency, 40);
AT(abi_props_v8, max_comms, 44);
AT(abi_props_v8, max_recvs, 48);
AT(abi_props_v8, device_type, 52);
AT(abi_props_v8, device_version, 56);

#define PROPS_V9(type) \
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

SIZE(abi_props_v9, 104);
PROPS_V9(abi_props_v9);
AT(abi_props_v9, max_p2p_bytes, 88);
AT(abi_props_v9, max_coll_bytes, 96);
SIZE(abi_props_v11, 112);
PROPS_V9(abi_props_v11);
AT(abi_props_v11, max_p2p_bytes, 88);
AT(abi_props_v11, max_coll_bytes, 96);
AT(abi_props_v11, max_multi_request_size, 104);
SIZE(abi_props_v12, 128);
PROPS_V9(abi_props_v12);
AT(abi_props_v12, max_p2p_bytes, 104);
AT(abi_props_v12, max_coll_bytes, 112);
AT(abi_props_v12, max_multi_request_size, 120);
AT(abi_props_v12, rail_id, 124);
AT(abi_props_v12, plane_id, 126);

SIZE(abi_config, 4);
SIZE(abi_peers, 16);
SIZE(abi_attr, 44);
AT(abi_attr, recv, 16);
AT(abi_attr, op, 32);
AT(abi_attr, algo, 36);
AT(abi_attr, proto, 40);
SIZE(abi_part_v8, 24);
AT(abi_part_v8, address, 8);
AT(abi_part_v8, size, 16);
SIZE(abi_part, 24);
AT(abi_part, address, 8);
AT(abi_part, size, 16);

#define NET(type, bytes) \
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

NET(abi_net_v8, 152);
NET(abi_net_v9, 160);
AT(abi_net_v9, make_vdevice, 152);
NET(abi_net_v10, 160);
AT(abi_net_v10, make_vdevice, 152);
NET(abi_net_v11, 176);
AT(abi_net_v11, make_vdevice, 152);
AT(abi_net_v11, finalize, 160);
AT(abi_net_v11, set_attr, 168);
NET(abi_net_v12, 176);
AT(abi_net_v12, make_vdevice, 152);
AT(abi_net_v12, finalize, 160);
AT(abi_net_v12, set_attr, 168);

#define COLL(type, bytes) \
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

COLL(abi_coll_v8, 136);
COLL(abi_coll_v9, 144);
AT(abi_coll_v9, make_vdevice, 136);
COLL(abi_coll_v11, 152);
AT(abi_coll_v11, make_vdevice, 136);
AT(abi_coll_v11, finalize, 144);
COLL(abi_coll_v12, 152);
AT(abi_coll_v12, make_vdevice, 136);
AT(abi_coll_v12, finalize, 144);

SIZE(abi_nvl_domains, 12);
SIZE(abi_constants, 1152);
AT(abi_constants, hw_latencies, 168);
AT(abi_constants, ll_max, 672);
AT(abi_constants, ring_ll128_max, 768);
AT(abi_constants, tree_ll128_max, 864);
AT(abi_constants, tree_max, 960);
AT(abi_constants, nvls_tree_max, 1056);

#define TUNER(type, bytes, last) \
	SIZE(type, bytes); \
	AT(type, name, 0); \
	AT(type, init, 8); \
	AT(type, get_info, 16); \
	AT(type, last, 24)

TUNER(abi_tuner_v2, 32, destroy);
TUNER(abi_tuner_v3, 32, destroy);
TUNER(abi_tuner_v4, 32, destroy);
TUNER(abi_tuner_v5, 32, finalize);
TUNER(abi_tuner_v6, 40, finalize);
AT(abi_tuner_v6, get_chunk_size, 32);
