/* Point to point: ncclnet/p2p moves the bytes, Go makes the connections. */
#include <limits.h>

#include "p2p/p2p.h"
#include "_cgo_export.h"
#include "plugin.h"

struct net_listener {
	int64_t handle;
	nccl_profiler profiler; /* of what it accepts, or NULL */
};

/* Up to v10 init makes no context: the profiler of the last one counts. NCCL gives the same each time. What NCCL 2.27
 * gives crashes unless the profiler that is loaded asks for what net plugins tell (it reads by a pointer in the parent
 * that it has not set; since 2.28.3 it has), and whether it does only our own says. NCCL's own plugins are built
 * without this. */
static nccl_profiler profiler_v10;

void net_profiler_v10(nccl_profiler profiler) { __atomic_store_n(&profiler_v10, profiler, __ATOMIC_RELEASE); }

static nccl_profiler profiler_of(const struct context *ctx)
{
	if (ctx != NULL)
		return ctx->profiler;
	return profiler_asks() ? __atomic_load_n(&profiler_v10, __ATOMIC_ACQUIRE) : NULL;
}

/* net_failed turns an outcome of p2p into NCCL's. */
static nccl_result net_failed(int code, struct p2p_comm *comm, const char *call)
{
	const char *why = p2p_error(comm);
	nccl_result result;

	switch (code) {
	case P2P_OK:
		return NCCL_SUCCESS;
	case P2P_E_ARGUMENT:
		result = NCCL_INVALID_ARGUMENT;
		if (*why == '\0')
			why = "a comm of the other direction, or a request that is done already";
		break;
	case P2P_E_REMOTE:
		result = NCCL_REMOTE_ERROR;
		break;
	case P2P_E_MISMATCH:
		result = NCCL_INVALID_USAGE;
		break;
	default:
		result = NCCL_SYSTEM_ERROR;
	}
	return plugin_refuse(result, "%s: %s", call, why);
}

/* What the device of a comm knows a buffer by; 0 where it has none, or there is no byte. */
static nccl_result key_of(struct p2p_comm *comm, const struct region *r, const void *data, size_t size, bool receive,
	uint32_t *key,
	const char *call)
{
	void *device = p2p_device_of(comm);

	*key = 0;
	if (device == NULL || size == 0)
		return NCCL_SUCCESS;
	if (r == NULL || r->device != device)
		return plugin_refuse(NCCL_INVALID_ARGUMENT,
			"%s: %zu bytes at %p are not registered with the RDMA device of the connection",
			call, size, data);
	*key = receive ? r->remote : r->local;
	return NCCL_SUCCESS;
}

nccl_result net_listen(void *ctx, int dev, void *handle, void **listen_comm)
{
	struct net_listener *l;
	nccl_result result;

	NOT_IN_A_FORK("listen");
	if (handle == NULL || listen_comm == NULL)
		return plugin_refuse(NCCL_INVALID_ARGUMENT, "listen: handle and listenComm must not be NULL");
	*listen_comm = NULL;
	l = calloc(1, sizeof(*l));
	if (l == NULL)
		return plugin_refuse(NCCL_SYSTEM_ERROR, "listen: out of memory");
	result = goNetListen(dev, handle, &l->handle);
	if (result != NCCL_SUCCESS) {
		free(l);
		return result;
	}
	l->profiler = profiler_of(ctx);
	*listen_comm = l;
	return NCCL_SUCCESS;
}

/* net_connect and net_accept never wait; a NULL comm means: ask again. */
nccl_result net_connect(void *ctx, int dev, void *handle, void **send_comm, struct device_handle **device)
{
	nccl_result result;

	NOT_IN_A_FORK("connect");
	if (handle == NULL || send_comm == NULL)
		return plugin_refuse(NCCL_INVALID_ARGUMENT, "connect: handle and sendComm must not be NULL");
	if (device != NULL)
		*device = NULL;
	*send_comm = NULL;
	result = goNetConnect(dev, handle, send_comm);
	if (*send_comm != NULL)
		p2p_profile(*send_comm, profiler_of(ctx));
	return result;
}

nccl_result net_accept(void *listen_comm, void **recv_comm, struct device_handle **device)
{
	struct net_listener *l = listen_comm;
	nccl_result result;

	NOT_IN_A_FORK("accept");
	if (l == NULL || recv_comm == NULL)
		return plugin_refuse(NCCL_INVALID_ARGUMENT, "accept: listenComm and recvComm must not be NULL");
	if (device != NULL)
		*device = NULL;
	*recv_comm = NULL;
	result = goNetAccept(l->handle, recv_comm);
	if (*recv_comm != NULL)
		p2p_profile(*recv_comm, l->profiler);
	return result;
}

nccl_result net_isend(void *send_comm, void *data, size_t size, int tag, void *mhandle, void *phandle, void **request)
{
	void *at;
	uint32_t key;
	nccl_result result;
	int code;

	NOT_IN_A_FORK("isend");
	if (send_comm == NULL || request == NULL)
		return plugin_refuse(NCCL_INVALID_ARGUMENT, "isend: sendComm and request must not be NULL");
	*request = NULL;
	if (data == NULL && size > 0)
		return plugin_refuse(NCCL_INVALID_ARGUMENT, "isend: data is NULL but should hold %zu bytes", size);
	if (size > INT_MAX) /* test tells sizes as int */
		return plugin_refuse(NCCL_INVALID_ARGUMENT, "isend: %zu bytes; at most %d are allowed", size, INT_MAX);
	if (!memory_at(mhandle, data, size, &at))
		return memory_outside(mhandle, data, size, "isend");
	result = key_of(send_comm, mhandle, data, size, false, &key, "isend");
	if (result != NCCL_SUCCESS)
		return result;
	code = p2p_isend(send_comm, at, size, key, tag, phandle, (struct p2p_request **)request);
	return code == P2P_OK ? NCCL_SUCCESS : net_failed(code, send_comm, "isend");
}

nccl_result net_irecv(void *recv_comm, int n, void **data, size_t *sizes, int *tags, void **mhandles, void **phandles,
	void **request)
{
	void *at;
	uint32_t key;
	nccl_result result;
	int code;

	NOT_IN_A_FORK("irecv");
	if (recv_comm == NULL || request == NULL || data == NULL || sizes == NULL)
		return plugin_refuse(NCCL_INVALID_ARGUMENT, "irecv: recvComm, data, sizes and request must not be NULL");
	*request = NULL; /* it may come in as 0x1: nobody needs the completion */
	if (n != 1)
		return plugin_refuse(NCCL_INVALID_ARGUMENT, "irecv: %d receives at once; 1 is allowed (maxRecvs)", n);
	if (data[0] == NULL && sizes[0] > 0)
		return plugin_refuse(NCCL_INVALID_ARGUMENT, "irecv: data is NULL but should hold %zu bytes", sizes[0]);
	if (sizes[0] > INT_MAX) /* test tells sizes as int */
		return plugin_refuse(NCCL_INVALID_ARGUMENT, "irecv: %zu bytes; at most %d are allowed", sizes[0], INT_MAX);
	if (mhandles == NULL)
		at = data[0];
	else if (!memory_at(mhandles[0], data[0], sizes[0], &at))
		return memory_outside(mhandles[0], data[0], sizes[0], "irecv");
	result = key_of(recv_comm, mhandles ? mhandles[0] : NULL, data[0], sizes[0], true, &key, "irecv");
	if (result != NCCL_SUCCESS)
		return result;
	code = p2p_irecv(recv_comm, at, sizes[0], key, tags != NULL ? tags[0] : 0, phandles != NULL ? phandles[0] : NULL,
		(struct p2p_request **)request);
	return code == P2P_OK ? NCCL_SUCCESS : net_failed(code, recv_comm, "irecv");
}

/* net_iflush: bytes that the CPU has received were written before test said so. A reader that starts after
 * test sees them, so there is nothing to wait for: see pkg/gpudirect. Bytes that an RDMA device wrote to a GPU
 * may still be on their way there. */
nccl_result net_iflush(void *recv_comm, int n, void **data, int *sizes, void **mhandles, void **request)
{
	const struct region *r = n == 1 && mhandles != NULL ? mhandles[0] : NULL;
	int code;

	NOT_IN_A_FORK("iflush");
	if (request == NULL)
		return plugin_refuse(NCCL_INVALID_ARGUMENT, "iflush: request must not be NULL");
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	*request = NULL;
	if (r == NULL || !r->gpu || r->device == NULL || data == NULL || sizes == NULL || sizes[0] == 0)
		return NCCL_SUCCESS;
	code = p2p_iflush(recv_comm, data[0], r->remote, (struct p2p_request **)request);
	return code == P2P_OK ? NCCL_SUCCESS : net_failed(code, recv_comm, "iflush");
}

nccl_result net_test(void *request, int *done, int *sizes)
{
	struct p2p_comm *comm;
	size_t size = 0;
	int code;

	NOT_IN_A_FORK("test");
	if (request == NULL || done == NULL)
		return plugin_refuse(NCCL_INVALID_ARGUMENT, "test: request and done must not be NULL");
	comm = p2p_of(request);
	code = p2p_test(request, done, &size);
	if (code != P2P_OK)
		return net_failed(code, comm, "test");
	if (*done && sizes != NULL)
		*sizes = (int)size;
	return NCCL_SUCCESS;
}

nccl_result net_close(void *comm)
{
	NOT_IN_A_FORK("close"); /* the connection is the parent's still */
	if (comm != NULL)
		p2p_close(comm);
	return NCCL_SUCCESS;
}

nccl_result net_close_listen(void *listen_comm)
{
	struct net_listener *l = listen_comm;
	nccl_result result;

	NOT_IN_A_FORK("closeListen");
	if (l == NULL)
		return NCCL_SUCCESS;
	result = goNetCloseListen(l->handle);
	free(l);
	return result;
}

/* net_attr: NCCL tells the purpose of a connection or transfer. It changes nothing here. */
nccl_result net_attr(void *ctx, struct net_attr *attr)
{
	(void)ctx, (void)attr;
	return NCCL_SUCCESS;
}
