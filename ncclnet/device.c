/* Devices and their properties, and the communicators that ask for them. */
#include <string.h>

#include "_cgo_export.h"
#include "plugin.h"

/* plugin_init reads the settings and looks for devices. It may be called any number of times. */
nccl_result plugin_init(nccl_logger log)
{
	NOT_IN_A_FORK("init");
	plugin_log_to(log);
	return goPluginInit();
}

/* context_init is plugin_init for a communicator of its own. */
nccl_result context_init(void **ctx, uint64_t comm_id, nccl_logger log)
{
	struct context *c;
	nccl_result result = plugin_init(log);

	if (result != NCCL_SUCCESS)
		return result;
	if (ctx == NULL)
		return plugin_refuse(NCCL_INVALID_ARGUMENT, "init: ctx must not be NULL");
	c = calloc(1, sizeof(*c));
	if (c == NULL)
		return plugin_refuse(NCCL_SYSTEM_ERROR, "init: out of memory");
	c->comm_id = comm_id;
	*ctx = c;
	return NCCL_SUCCESS;
}

/* context_finalize ends it. NCCL may come without one. */
nccl_result context_finalize(void *ctx)
{
	free(ctx);
	return NCCL_SUCCESS;
}

nccl_result net_devices(int *count)
{
	NOT_IN_A_FORK("devices");
	if (count == NULL)
		return plugin_refuse(NCCL_INVALID_ARGUMENT, "devices: ndev must not be NULL");
	return goDevices(count);
}

/* coll_devices: the first of net's. All ranks must offer as many. */
nccl_result coll_devices(int *count)
{
	NOT_IN_A_FORK("devices");
	if (count == NULL)
		return plugin_refuse(NCCL_INVALID_ARGUMENT, "devices: ndev must not be NULL");
	return goCollDevices(count);
}

/* properties_v12 describes a device. CollNet's has the name of net's: NCCL pairs them by it. */
nccl_result properties_v12(int dev, struct props_v12 *p)
{
	struct device d;
	nccl_result result;

	NOT_IN_A_FORK("getProperties");
	if (p == NULL)
		return plugin_refuse(NCCL_INVALID_ARGUMENT, "getProperties: props must not be NULL");
	result = goDevice(dev, &d);
	if (result != NCCL_SUCCESS)
		return result;
	memset(p, 0, sizeof(*p));
	p->name = d.name;
	p->pci_path = d.pci_path;
	p->guid = d.guid;
	p->ptr_support = d.ptr_support;
	p->reg_is_global = 1; /* there is nothing of a comm in it */
	p->speed = d.speed;
	p->port = 1;
	p->max_comms = 65536;
	p->max_recvs = 1;
	p->vprops.count = 1;
	p->vprops.devices[0] = dev;
	p->max_p2p_bytes = MAX_P2P_BYTES;
	p->max_coll_bytes = MAX_COLL_BYTES;
	p->max_multi_request = 1;
	p->rail = NCCL_ID_UNDEFINED;
	p->plane = NCCL_ID_UNDEFINED;
	return NCCL_SUCCESS;
}

static void to_v9(struct props_v9 *p, const struct props_v12 *n)
{
	*p = (struct props_v9){
		.name = n->name, .pci_path = n->pci_path, .guid = n->guid,
		.ptr_support = n->ptr_support, .reg_is_global = n->reg_is_global, .force_flush = n->force_flush,
		.speed = n->speed, .port = n->port, .latency = n->latency,
		.max_comms = n->max_comms, .max_recvs = n->max_recvs,
		.device_type = n->device_type, .device_version = n->device_version,
		.vprops = { .count = n->vprops.count, .devices = { n->vprops.devices[0] } },
		.max_p2p_bytes = n->max_p2p_bytes, .max_coll_bytes = n->max_coll_bytes,
	};
}

nccl_result properties_v11(int dev, struct props_v11 *p)
{
	struct props_v12 newest;
	nccl_result result = properties_v12(dev, p == NULL ? NULL : &newest);

	if (result == NCCL_SUCCESS) {
		to_v9(&p->v9, &newest);
		p->max_multi_request = newest.max_multi_request;
	}
	return result;
}

nccl_result properties_v9(int dev, struct props_v9 *p)
{
	struct props_v12 newest;
	nccl_result result = properties_v12(dev, p == NULL ? NULL : &newest);

	if (result == NCCL_SUCCESS)
		to_v9(p, &newest);
	return result;
}

nccl_result properties_v8(int dev, struct props_v8 *p)
{
	struct props_v12 newest;
	nccl_result result = properties_v12(dev, p == NULL ? NULL : &newest);

	if (result == NCCL_SUCCESS)
		*p = (struct props_v8){
			.name = newest.name, .pci_path = newest.pci_path, .guid = newest.guid,
			.ptr_support = newest.ptr_support, .reg_is_global = newest.reg_is_global,
			.speed = newest.speed, .port = newest.port, .latency = newest.latency,
			.max_comms = newest.max_comms, .max_recvs = newest.max_recvs,
			.device_type = newest.device_type, .device_version = newest.device_version,
		};
	return result;
}

/* CollNet's devices are net's, but for the memory that they take: the CPU moves CollNet's bytes. */
#define COLL_PROPERTIES(VERSION, POINTERS) \
	nccl_result coll_properties_##VERSION(int dev, struct props_##VERSION *p) \
	{ \
		nccl_result result = properties_##VERSION(dev, p); \
\
		if (result == NCCL_SUCCESS) \
			p->POINTERS = goCollPointers(); \
		return result; \
	}
COLL_PROPERTIES(v8, ptr_support)
COLL_PROPERTIES(v9, ptr_support)
COLL_PROPERTIES(v11, v9.ptr_support)
COLL_PROPERTIES(v12, ptr_support)
