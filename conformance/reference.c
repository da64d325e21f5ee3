/* Init, contexts and what else belongs to no connection. */
#include <stdlib.h>

#include "reference.h"

char ref_device[] = "reference0", ref_other_device[] = "reference-coll0";

static int open_context(void **ctx, uint64_t id, size_t nnodes)
{
	struct ref_context *c = calloc(1, sizeof(*c));

	if (!c)
		return ABI_SYSTEM_ERROR;
	c->id = id;
	c->nnodes = nnodes;
	*ctx = c;
	return ABI_SUCCESS;
}

int ref_finalize(void *ctx)
{
	free(ctx);
	return ABI_SUCCESS;
}

/* Init may come any number of times, with and without a finalize between. */
int ref_init_v8(abi_log *log)
{
	static int begun;

	(void)log;
	return begun++ && mutant("second-init") ? ABI_SYSTEM_ERROR : ABI_SUCCESS;
}

int ref_init(void **ctx, uint64_t id, struct abi_config *config, abi_log *log, abi_profile *profile)
{
	int rc = ref_init_v8(log);

	(void)config;
	ref_profile(profile);
	return rc ? rc : open_context(ctx, id, 0);
}

int ref_coll_init_v8(abi_log *log)
{
	(void)log;
	return ABI_SUCCESS;
}

int ref_coll_init(void **ctx, uint64_t id, abi_log *log)
{
	(void)log;
	return open_context(ctx, id, 0);
}

int ref_devices(int *ndev)
{
	*ndev = mutant("no-device") ? 0 : 1;
	return ABI_SUCCESS;
}

int ref_listen_v8(int dev, void *handle, void **listen)
{
	return ref_listen(NULL, dev, handle, listen);
}

int ref_net_connect_v8(int dev, void *handle, void **send, struct abi_device **device)
{
	return ref_net_connect(NULL, dev, handle, send, device);
}

int ref_set_attr(void *ctx, struct abi_attr *attr)
{
	(void)ctx, (void)attr;
	return ABI_SUCCESS;
}

/* NCCL asks once all ranks have connected, on the thread that then makes the tuner. */
static __thread bool asked;

int ref_coll_reduce_support(int type, int op, int *supported)
{
	asked = true;
	*supported = ref_reduce_support(type, op);
	return ABI_SUCCESS;
}

/* Nodes for which this thread's tuner may choose CollNet: none if NCCL has given it up for the communicator. */
static size_t confirmed(size_t nnodes)
{
	bool was = asked || mutant("tuner-any-connected");

	asked = false;
	return was ? nnodes : 0;
}

int ref_tuner_init(void **ctx, uint64_t id, size_t nranks, size_t nnodes, abi_log *log,
	struct abi_nvl_domains *domains, struct abi_constants *constants)
{
	int rc = open_context(ctx, id, confirmed(nnodes));

	(void)log, (void)domains, (void)constants;
	if (rc == ABI_SUCCESS)
		((struct ref_context *)*ctx)->crowded = nranks > nnodes;
	return rc;
}

int ref_tuner_init_v2(size_t nranks, size_t nnodes, abi_log *log, void **ctx)
{
	return ref_tuner_init(ctx, 0, nranks, nnodes, log, NULL, NULL);
}
