/* CollNet: internal/group does the work, Go posts it, C answers test. */
#include <string.h>

#include "_cgo_export.h"
#include "coll.h"
#include "plugin.h"

struct coll_listener {
	int64_t handle;
	uint64_t comm_id; /* 0 before v11 */
};

/* coll_comm is a group that this process has joined. One thread uses it at a time. */
struct coll_comm {
	int64_t group;
	int rank, ranks;
	struct connected *connected;
	bool drives;     /* test moves bytes */
	uint32_t misses; /* tests in vain */
	uint32_t free; /* requests, by bit */
	struct coll_request requests[NCCL_REQUESTS];
};

static const int type_sizes[] = { 1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1 }; /* of ncclDataType_t i8 ... e5m2 */

static int type_size(int dtype)
{
	return dtype < 0 || (size_t)dtype >= sizeof(type_sizes) / sizeof(type_sizes[0]) ? 0 : type_sizes[dtype];
}

static bool reducible(int dtype, int op) { return type_size(dtype) > 0 && op >= 0 && op <= 3; }

/* coll_reduce_support: all types, and sum, prod, max, min; NCCL turns an average into a sum by
 * itself. The tuner relies on it that none is refused. */
nccl_result coll_reduce_support(int dtype, int op, int *supported)
{
	if (supported == NULL)
		return plugin_refuse(NCCL_INVALID_ARGUMENT, "reduceSupport: supported must not be NULL");
	connected_confirm();
	*supported = reducible(dtype, op);
	return NCCL_SUCCESS;
}

nccl_result coll_listen(void *ctx, int dev, void *handle, void **listen_comm)
{
	struct coll_listener *l;
	nccl_result result;

	NOT_IN_A_FORK("CollNet listen");
	if (handle == NULL || listen_comm == NULL)
		return plugin_refuse(NCCL_INVALID_ARGUMENT, "CollNet listen: handle and listenComm must not be NULL");
	*listen_comm = NULL;
	l = calloc(1, sizeof(*l));
	if (l == NULL)
		return plugin_refuse(NCCL_SYSTEM_ERROR, "CollNet listen: out of memory");
	l->comm_id = ctx == NULL ? 0 : ((struct context *)ctx)->comm_id;
	result = goCollListen(dev, handle, &l->handle);
	if (result != NCCL_SUCCESS) {
		free(l);
		return result;
	}
	*listen_comm = l;
	return NCCL_SUCCESS;
}

/* coll_connect waits for all ranks and succeeds on all or on none: NCCL hangs if they differ. */
nccl_result coll_connect(void *handles[], int nranks, int rank, void *listen_comm, void **coll_comm)
{
	struct coll_listener *l = listen_comm;
	struct coll_comm *c;
	struct coll_made made;
	nccl_result result;

	NOT_IN_A_FORK("CollNet connect");
	if (handles == NULL || l == NULL || coll_comm == NULL)
		return plugin_refuse(NCCL_INVALID_ARGUMENT, "CollNet connect: handles, listenComm and collComm must not be NULL");
	*coll_comm = NULL;
	c = calloc(1, sizeof(*c));
	if (c == NULL)
		return plugin_refuse(NCCL_SYSTEM_ERROR, "CollNet connect: out of memory");
	result = goCollConnect(handles, nranks, rank, l->handle, &made);
	if (result != NCCL_SUCCESS) {
		free(c);
		return result;
	}
	c->group = made.group;
	c->drives = made.drives;
	c->rank = rank;
	c->ranks = nranks;
	c->free = UINT32_MAX;
	for (int i = 0; i < NCCL_REQUESTS; i++)
		c->requests[i].comm = c;
	c->connected = connected_add(l->comm_id, nranks, &made);
	*coll_comm = c;
	return NCCL_SUCCESS;
}

/* take returns a free request, or NULL when as many as allowed are in flight. */
static struct coll_request *take(struct coll_comm *c, void *from, void *to)
{
	int i = __builtin_ffs((int)c->free) - 1;

	if (i < 0)
		return NULL;
	c->free &= ~(UINT32_C(1) << i);
	c->requests[i].uses[0] = from;
	c->requests[i].uses[1] = to;
	__atomic_store_n(&c->requests[i].state, COLL_POSTED, __ATOMIC_RELEASE);
	return &c->requests[i];
}

/* give_back frees a request, and forgets the registrations that it used. */
static void give_back(struct coll_request *r)
{
	r->uses[0] = r->uses[1] = NULL;
	__atomic_store_n(&r->state, COLL_FREE, __ATOMIC_RELAXED);
	r->comm->free |= UINT32_C(1) << (r - r->comm->requests);
}

/* posted hands out a request that Go has taken. It frees the request if Go has refused the call or has no room. */
static nccl_result posted(nccl_result result, int func, struct coll_request *r, void **request)
{
	if (result == NCCL_SUCCESS && __atomic_load_n(&r->state, __ATOMIC_RELAXED) != COLL_FREE) {
		connected_window(r->comm->connected, func);
		*request = r;
	} else {
		give_back(r);
	}
	return result;
}

static nccl_result check_call(const char *call, const void *comm, void **request)
{
	NOT_IN_A_FORK(call);
	if (comm == NULL || request == NULL)
		return plugin_refuse(NCCL_INVALID_ARGUMENT, "%s: collComm and request must not be NULL", call);
	*request = NULL;
	return NCCL_SUCCESS;
}

static nccl_result check_reduction(const char *call, int dtype, int op)
{
	return reducible(dtype, op) ? NCCL_SUCCESS
		  : plugin_refuse(NCCL_INVALID_ARGUMENT, "%s: type %d with operation %d is not what reduceSupport accepts", call,
		  	dtype, op);
}

/* buffer_at is memory_at for a buffer that must be there. */
static nccl_result buffer_at(const char *call, void *mhandle, void *data, size_t size, void **at)
{
	if (data == NULL && size > 0)
		return plugin_refuse(NCCL_INVALID_ARGUMENT, "%s: a buffer of %zu bytes is NULL", call, size);
	return memory_at(mhandle, data, size, at) ? NCCL_SUCCESS : memory_outside(mhandle, data, size, call);
}

/* check_window looks at the one part that a window lies in, and returns where. */
static nccl_result check_window(const char *call, const struct coll_comm *c, int parts, const struct sge_v9 *part,
	const struct coll_window *w, void **at)
{
	size_t ranks = (size_t)c->ranks;

	if (parts != 1 || part == NULL)
		return plugin_refuse(NCCL_INVALID_ARGUMENT, "%s: %d parts; 1 is allowed", call, part == NULL ? 0 : parts);
	if (w->shard > SIZE_MAX / ranks || w->offset > w->shard * ranks || w->bytes > w->shard * ranks - w->offset)
		return plugin_refuse(NCCL_INVALID_ARGUMENT, "%s: a window of %zu bytes at %zu is not inside %zu ranks' %zu bytes",
			call,
			w->bytes, w->offset, ranks, w->shard);
	if (part->size < w->bytes)
		return plugin_refuse(NCCL_INVALID_ARGUMENT, "%s: the part holds %zu bytes, the window %zu", call, part->size,
			w->bytes);
	return buffer_at(call, part->mhandle, part->address, w->bytes, at);
}

/* own returns how many bytes of a window are of this rank's slot. */
static size_t own(const struct coll_comm *c, const struct coll_window *w)
{
	size_t from = (size_t)c->rank * w->shard, to = from + w->shard, end = w->offset + w->bytes;

	if (from < w->offset)
		from = w->offset;
	if (to > end)
		to = end;
	return from < to ? to - from : 0;
}

nccl_result coll_iallgather(void *coll_comm, void *send, int parts, struct sge_v9 *recv_parts, size_t bytes_per_rank,
	size_t window_offset, size_t window_bytes, void *send_mhandle, void **request)
{
	struct coll_comm *c = coll_comm;
	struct coll_window w = { bytes_per_rank, window_offset, window_bytes };
	struct coll_request *r;
	void *from = NULL, *window;
	size_t mine;
	nccl_result result = check_call("iallgather", c, request);

	if (result == NCCL_SUCCESS)
		result = check_window("iallgather", c, parts, recv_parts, &w, &window);
	if (result != NCCL_SUCCESS)
		return result;
	mine = own(c, &w);
	if (mine > 0 && (result = buffer_at("iallgather", send_mhandle, send, mine, &from)) != NCCL_SUCCESS)
		return result;
	r = take(c, send_mhandle, recv_parts->mhandle);
	if (r == NULL)
		return NCCL_SUCCESS;
	r->size = window_bytes;
	return posted(goCollAllgather(c->group, from, mine, window, w, r), NCCL_ALLGATHER, r, request);
}

nccl_result coll_ireducescatter(void *coll_comm, int parts, struct sge_v9 *send_parts, void *recv,
	size_t bytes_per_rank,
	size_t window_offset, size_t window_bytes, int dtype, int op, void *recv_mhandle, void **request)
{
	struct coll_comm *c = coll_comm;
	struct coll_window w = { bytes_per_rank, window_offset, window_bytes };
	struct coll_request *r;
	void *to = NULL, *window;
	size_t mine;
	nccl_result result = check_call("ireducescatter", c, request);

	if (result == NCCL_SUCCESS)
		result = check_reduction("ireducescatter", dtype, op);
	if (result == NCCL_SUCCESS)
		result = check_window("ireducescatter", c, parts, send_parts, &w, &window);
	if (result != NCCL_SUCCESS)
		return result;
	mine = own(c, &w);
	if (mine > 0 && (result = buffer_at("ireducescatter", recv_mhandle, recv, mine, &to)) != NCCL_SUCCESS)
		return result;
	r = take(c, send_parts->mhandle, recv_mhandle);
	if (r == NULL)
		return NCCL_SUCCESS;
	r->size = mine;
	return posted(goCollReduceScatter(c->group, window, w, to, mine, dtype, op, r), NCCL_REDUCE_SCATTER, r, request);
}

nccl_result coll_iallreduce(void *coll_comm, void *send, void *recv, size_t count, int dtype, int op,
	void *send_mhandle, void *recv_mhandle, void **request)
{
	struct coll_comm *c = coll_comm;
	struct coll_request *r;
	void *from, *to;
	size_t bytes;
	nccl_result result = check_call("iallreduce", c, request);

	if (result == NCCL_SUCCESS)
		result = check_reduction("iallreduce", dtype, op);
	if (result != NCCL_SUCCESS)
		return result;
	if (count > MAX_COLL_BYTES / (size_t)type_size(dtype))
		return plugin_refuse(NCCL_INVALID_ARGUMENT, "iallreduce: %zu elements of %d bytes; at most %zu bytes are allowed",
			count,
			type_size(dtype), MAX_COLL_BYTES);
	bytes = count * (size_t)type_size(dtype);
	if ((result = buffer_at("iallreduce", send_mhandle, send, bytes, &from)) != NCCL_SUCCESS)
		return result;
	if ((result = buffer_at("iallreduce", recv_mhandle, recv, bytes, &to)) != NCCL_SUCCESS)
		return result;
	r = take(c, send_mhandle, recv_mhandle);
	if (r == NULL)
		return NCCL_SUCCESS;
	r->size = bytes;
	return posted(goCollAllreduce(c->group, from, to, bytes, dtype, op, r), NCCL_ALLREDUCE, r, request);
}

/* coll_iflush: as net_iflush. */
nccl_result coll_iflush(void *coll_comm, void *data, int size, void *mhandle, void **request)
{
	(void)data, (void)size, (void)mhandle;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return check_call("iflush", coll_comm, request);
}

/* coll_test costs a load while the operation is under way. Where cores are few the thread that
 * asks takes the core from the one that moves the bytes: there it moves them itself,
 * once in a few times that it asks in vain (MCAST_DRIVER; docs/decisions/0014). */
nccl_result coll_test(void *request, int *done, int *size)
{
	struct coll_request *r = request;

	if (r == NULL || done == NULL)
		return plugin_refuse(NCCL_INVALID_ARGUMENT, "CollNet test: request and done must not be NULL");
	*done = 0;
	switch (__atomic_load_n(&r->state, __ATOMIC_ACQUIRE)) {
	case COLL_POSTED:
		if (r->comm->drives && ++r->comm->misses % 4 == 0 && !mcast_forked())
			goCollHelp(r->comm->group);
		return NCCL_SUCCESS;
	case COLL_DONE:
		*done = 1;
		if (size != NULL)
			*size = (int)r->size;
		give_back(r);
		return NCCL_SUCCESS;
	case COLL_FAILED:
		return r->result; /* Go has said why */
	}
	return plugin_refuse(NCCL_INVALID_ARGUMENT, "CollNet test: the request is done already, or none");
}

/* registered passes on the outcome of a registration: without its buffers NCCL gives CollNet up. */
static nccl_result registered(const struct coll_comm *c, size_t size, nccl_result result)
{
	if (c != NULL)
		connected_registered(c->connected, result == NCCL_SUCCESS ? size : 0);
	return result;
}

nccl_result coll_register(void *coll_comm, void *data, size_t size, int type, void **mhandle)
{
	return registered(coll_comm, size, memory_register(NULL, data, size, type, mhandle));
}

nccl_result coll_register_dmabuf(void *coll_comm, void *data, size_t size, int type, uint64_t offset, int fd,
	void **mhandle)
{
	return registered(coll_comm, size, memory_register_dmabuf(NULL, data, size, type, offset, fd, mhandle));
}

/* in_use reports whether an operation in flight reads or writes a region. */
static bool in_use(const struct coll_comm *c, const struct region *r)
{
	for (int i = 0; i < NCCL_REQUESTS; i++) {
		const struct coll_request *q = &c->requests[i];

		if (__atomic_load_n(&q->state, __ATOMIC_ACQUIRE) == COLL_POSTED && (q->uses[0] == r || q->uses[1] == r))
			return true;
	}
	return false;
}

/* coll_deregister: when a communicator is aborted NCCL deregisters and frees buffers that operations in
 * flight use, and closes only then. Those operations end first. */
nccl_result coll_deregister(void *coll_comm, void *mhandle)
{
	struct coll_comm *c = coll_comm;

	NOT_IN_A_FORK("deregMr");
	if (c != NULL && mhandle != NULL && in_use(c, mhandle))
		goCollAbort(c->group);
	return memory_deregister(c, mhandle);
}

/* coll_close leaves the group. Operations in flight fail, and nothing touches their memory afterwards. */
nccl_result coll_close(void *coll_comm)
{
	struct coll_comm *c = coll_comm;
	nccl_result result;

	NOT_IN_A_FORK("closeColl");
	if (c == NULL)
		return NCCL_SUCCESS;
	connected_remove(c->connected);
	result = goCollClose(c->group);
	free(c);
	return result;
}

nccl_result coll_close_listen(void *listen_comm)
{
	struct coll_listener *l = listen_comm;
	nccl_result result;

	NOT_IN_A_FORK("CollNet closeListen");
	if (l == NULL)
		return NCCL_SUCCESS;
	result = goCollCloseListen(l->handle);
	free(l);
	return result;
}
