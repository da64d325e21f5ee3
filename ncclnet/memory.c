/* Registration of memory. */
#include "_cgo_export.h"
#include "p2p/p2p.h"
#include "plugin.h"

static nccl_result begin(void *data, size_t size, void **mhandle, struct region **r)
{
	NOT_IN_A_FORK("regMr");
	if (mhandle == NULL)
		return plugin_refuse(NCCL_INVALID_ARGUMENT, "regMr: mhandle must not be NULL");
	*mhandle = NULL;
	*r = calloc(1, sizeof(**r));
	if (*r == NULL)
		return plugin_refuse(NCCL_SYSTEM_ERROR, "regMr: out of memory");
	(*r)->base = (uintptr_t)data;
	(*r)->size = size;
	return NCCL_SUCCESS;
}

static nccl_result end(nccl_result result, struct region *r, void **mhandle)
{
	if (result == NCCL_SUCCESS)
		*mhandle = r;
	else
		free(r);
	return result;
}

/* A registration holds for all comms of a device. */
nccl_result memory_register(void *comm, void *data, size_t size, int type, void **mhandle)
{
	struct region *r;
	nccl_result result = begin(data, size, mhandle, &r);

	if (result != NCCL_SUCCESS)
		return result;
	r->gpu = type == NCCL_PTR_CUDA;
	r->device = comm != NULL ? p2p_device_of(comm) : NULL;
	return end(goRegister(data, size, type, r), r, mhandle);
}

nccl_result memory_register_dmabuf(void *comm, void *data, size_t size, int type, uint64_t offset, int fd,
	void **mhandle)
{
	struct region *r;
	nccl_result result = begin(data, size, mhandle, &r);

	if (result != NCCL_SUCCESS)
		return result;
	r->gpu = type == NCCL_PTR_CUDA;
	r->device = comm != NULL ? p2p_device_of(comm) : NULL;
	return end(goRegisterDMABuf(data, size, offset, fd, r), r, mhandle);
}

nccl_result memory_deregister(void *comm, void *mhandle)
{
	struct region *r = mhandle;
	nccl_result result;

	NOT_IN_A_FORK("deregMr");
	(void)comm;
	if (r == NULL)
		return NCCL_SUCCESS;
	result = goDeregister(r->handle);
	free(r);
	return result;
}

/* memory_outside complains about a buffer that is not inside its registration. */
nccl_result memory_outside(const struct region *r, const void *data, size_t size, const char *call)
{
	return plugin_refuse(NCCL_INVALID_ARGUMENT,
		"%s: %zu bytes at %p are not inside what its mhandle registers, %zu bytes at %p",
		call, size, data, r->size, (void *)r->base);
}
