/* The C side of mcast.h. It turns the public signatures, which have const, into signatures that cgo can
 * export, and keeps the children of fork() out of Go. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "_cgo_export.h"
#include "fork.h"
#include "mcast.h"

const char *mcast_version(void)
{
	return mcast_forked() ? "unknown, in a fork of the process that loaded the library" : goVersion();
}

int mcast_abi(void)
{
	return MCAST_ABI;
}

int mcast_open(int rank, int size, const char *options, void *blob, size_t cap, size_t *len,
	int64_t *endpoint, char *err, size_t errlen)
{
	if (mcast_forked())
		return mcast_forked_text(err, errlen);
	return goOpen(rank, size, (char *)options, blob, cap, len, endpoint, err, errlen);
}

int mcast_join(int64_t endpoint, const void *blobs, const size_t *lens, int64_t timeout_ms,
	int64_t *group, char *err, size_t errlen)
{
	if (mcast_forked())
		return mcast_forked_text(err, errlen);
	return goJoin(endpoint, (void *)blobs, (size_t *)lens, timeout_ms, group, err, errlen);
}

int mcast_close_endpoint(int64_t endpoint, char *err, size_t errlen)
{
	if (mcast_forked())
		return mcast_forked_text(err, errlen);
	return goCloseEndpoint(endpoint, err, errlen);
}

int mcast_allgather(int64_t group, const void *send, void *recv, size_t bytes,
	int64_t *work, char *err, size_t errlen)
{
	if (mcast_forked())
		return mcast_forked_text(err, errlen);
	return goAllgather(group, (void *)send, recv, bytes, work, err, errlen);
}

int mcast_reserve(int64_t group, size_t bytes, int64_t *output, char *err, size_t errlen)
{
	if (mcast_forked())
		return mcast_forked_text(err, errlen);
	return goReserve(group, bytes, output, err, errlen);
}

int mcast_place(int64_t output, int64_t timeout_ms, void **at, char *err, size_t errlen)
{
	if (mcast_forked())
		return mcast_forked_text(err, errlen);
	return goPlace(output, timeout_ms, at, err, errlen);
}

int mcast_release(int64_t output)
{
	if (mcast_forked())
		return mcast_forked_text(NULL, 0);
	return goRelease(output);
}

int mcast_register(int64_t group, const void *memory, size_t bytes, int64_t *registration, char *err, size_t errlen)
{
	if (mcast_forked())
		return mcast_forked_text(err, errlen);
	return goRegisterMemory(group, (void *)memory, bytes, registration, err, errlen);
}

int mcast_deregister(int64_t registration, char *err, size_t errlen)
{
	if (mcast_forked())
		return mcast_forked_text(err, errlen);
	return goDeregisterMemory(registration, err, errlen);
}

int mcast_broadcast(int64_t group, void *buf, size_t bytes, int root,
	int64_t *work, char *err, size_t errlen)
{
	if (mcast_forked())
		return mcast_forked_text(err, errlen);
	return goBroadcast(group, buf, bytes, root, work, err, errlen);
}

int mcast_reduce_scatter(int64_t group, const void *send, void *recv, size_t count,
	int dtype, int op, double factor, int64_t *work, char *err, size_t errlen)
{
	if (mcast_forked())
		return mcast_forked_text(err, errlen);
	return goReduceScatter(group, (void *)send, recv, count, dtype, op, factor, work, err, errlen);
}

int mcast_reduce(int64_t group, const void *send, void *recv, size_t count,
	int dtype, int op, double factor, int root, int64_t *work, char *err, size_t errlen)
{
	if (mcast_forked())
		return mcast_forked_text(err, errlen);
	return goReduce(group, (void *)send, recv, count, dtype, op, factor, root, work, err, errlen);
}

int mcast_allreduce(int64_t group, const void *send, void *recv, size_t count,
	int dtype, int op, double factor, int64_t *work, char *err, size_t errlen)
{
	if (mcast_forked())
		return mcast_forked_text(err, errlen);
	return goAllreduce(group, (void *)send, recv, count, dtype, op, factor, work, err, errlen);
}

int mcast_barrier(int64_t group, int64_t *work, char *err, size_t errlen)
{
	if (mcast_forked())
		return mcast_forked_text(err, errlen);
	return goBarrier(group, work, err, errlen);
}

int mcast_send(int64_t group, const void *buf, size_t bytes, int to, uint64_t tag,
	int64_t *work, char *err, size_t errlen)
{
	if (mcast_forked())
		return mcast_forked_text(err, errlen);
	return goSend(group, (void *)buf, bytes, to, tag, work, err, errlen);
}

int mcast_recv(int64_t group, void *buf, size_t bytes, int from, uint64_t tag,
	int64_t *work, char *err, size_t errlen)
{
	if (mcast_forked())
		return mcast_forked_text(err, errlen);
	return goRecv(group, buf, bytes, from, tag, work, err, errlen);
}

int mcast_source(int64_t work, int *rank, size_t *bytes, char *err, size_t errlen)
{
	if (mcast_forked())
		return mcast_forked_text(err, errlen);
	return goSource(work, rank, bytes, err, errlen);
}

int mcast_all_to_all(int64_t group, const void *send, void *recv, const size_t *sent, const size_t *received,
	int64_t *work, char *err, size_t errlen)
{
	if (mcast_forked())
		return mcast_forked_text(err, errlen);
	return goAllToAll(group, (void *)send, recv, (size_t *)sent, (size_t *)received, work, err, errlen);
}

int mcast_gather(int64_t group, const void *send, void *recv, size_t bytes, int root,
	int64_t *work, char *err, size_t errlen)
{
	if (mcast_forked())
		return mcast_forked_text(err, errlen);
	return goGather(group, (void *)send, recv, bytes, root, work, err, errlen);
}

int mcast_scatter(int64_t group, const void *send, void *recv, size_t bytes, int root,
	int64_t *work, char *err, size_t errlen)
{
	if (mcast_forked())
		return mcast_forked_text(err, errlen);
	return goScatter(group, (void *)send, recv, bytes, root, work, err, errlen);
}

int mcast_device_allgather(int64_t group, const struct mcast_stream *at, uint64_t send, uint64_t recv, size_t bytes,
	int64_t *work, char *err, size_t errlen)
{
	if (mcast_forked())
		return mcast_forked_text(err, errlen);
	return goDeviceAllgather(group, (struct mcast_stream *)at, send, recv, bytes, work, err, errlen);
}

int mcast_device_broadcast(int64_t group, const struct mcast_stream *at, uint64_t buf, size_t bytes, int root,
	int64_t *work, char *err, size_t errlen)
{
	if (mcast_forked())
		return mcast_forked_text(err, errlen);
	return goDeviceBroadcast(group, (struct mcast_stream *)at, buf, bytes, root, work, err, errlen);
}

int mcast_device_reduce_scatter(int64_t group, const struct mcast_stream *at, uint64_t send, uint64_t recv,
	size_t count, int dtype, int op, double factor,
	int64_t *work, char *err, size_t errlen)
{
	if (mcast_forked())
		return mcast_forked_text(err, errlen);
	return goDeviceReduceScatter(group, (struct mcast_stream *)at, send, recv, count, dtype, op, factor, work, err,
		errlen);
}

int mcast_device_reduce(int64_t group, const struct mcast_stream *at, uint64_t send, uint64_t recv,
	size_t count, int dtype, int op, double factor, int root,
	int64_t *work, char *err, size_t errlen)
{
	if (mcast_forked())
		return mcast_forked_text(err, errlen);
	return goDeviceReduce(group, (struct mcast_stream *)at, send, recv, count, dtype, op, factor, root, work, err,
		errlen);
}

int mcast_device_allreduce(int64_t group, const struct mcast_stream *at, uint64_t send, uint64_t recv,
	size_t count, int dtype, int op, double factor,
	int64_t *work, char *err, size_t errlen)
{
	if (mcast_forked())
		return mcast_forked_text(err, errlen);
	return goDeviceAllreduce(group, (struct mcast_stream *)at, send, recv, count, dtype, op, factor, work, err, errlen);
}

int mcast_device_follow(int64_t work, uint64_t stream, char *err, size_t errlen)
{
	if (mcast_forked())
		return mcast_forked_text(err, errlen);
	return goDeviceFollow(work, stream, err, errlen);
}

int mcast_test(int64_t work, int *done, char *err, size_t errlen)
{
	if (mcast_forked())
		return mcast_forked_text(err, errlen);
	return goTest(work, done, err, errlen);
}

int mcast_wait(int64_t work, int64_t timeout_ms, char *err, size_t errlen)
{
	if (mcast_forked())
		return mcast_forked_text(err, errlen);
	return goWait(work, timeout_ms, err, errlen);
}

int mcast_account(int64_t work, uint64_t ns[5], char *err, size_t errlen)
{
	if (mcast_forked())
		return mcast_forked_text(err, errlen);
	return goAccount(work, ns, err, errlen);
}

int mcast_forget(int64_t work)
{
	if (mcast_forked())
		return mcast_forked_text(NULL, 0);
	return goForget(work);
}

int mcast_info(int64_t group, char *buf, size_t cap, size_t *len, char *err, size_t errlen)
{
	if (mcast_forked())
		return mcast_forked_text(err, errlen);
	return goInfo(group, buf, cap, len, err, errlen);
}

int mcast_communicators(char *buf, size_t cap, size_t *len, char *err, size_t errlen)
{
	if (mcast_forked())
		return mcast_forked_text(err, errlen);
	return goCommunicators(buf, cap, len, err, errlen);
}

int mcast_trace(const char *path, char *err, size_t errlen)
{
	if (mcast_forked())
		return mcast_forked_text(err, errlen);
	return goTrace((char *)path, err, errlen);
}

int mcast_stats(int64_t group, struct mcast_stats *stats, char *err, size_t errlen)
{
	struct mcast_stats all;
	int rc;

	if (mcast_forked())
		return mcast_forked_text(err, errlen);
	if (stats == NULL || stats->size < sizeof(stats->size))
		return goBadStats(err, errlen);
	memset(&all, 0, sizeof(all));
	all.size = stats->size < sizeof(all) ? stats->size : sizeof(all);
	rc = goStats(group, &all, err, errlen);
	if (rc == MCAST_OK)
		memcpy(stats, &all, all.size);
	return rc;
}

int mcast_close(int64_t group, char *err, size_t errlen)
{
	if (mcast_forked())
		return mcast_forked_text(err, errlen);
	return goClose(group, err, errlen);
}

int mcast_leave(int64_t group, int64_t *work, char *err, size_t errlen)
{
	if (mcast_forked())
		return mcast_forked_text(err, errlen);
	return goLeave(group, work, err, errlen);
}

int mcast_abort(int64_t group, const char *reason, char *err, size_t errlen)
{
	if (mcast_forked())
		return mcast_forked_text(err, errlen);
	return goAbort(group, (char *)reason, err, errlen);
}

/* leave_groups runs as the process ends, also in children of fork(), which have no groups. */
static void leave_groups(int status, void *unused)
{
	(void)unused;
	if (!mcast_forked())
		goExit(status);
}

int mcast_leave_at_exit(char *err, size_t errlen)
{
	static atomic_flag registered = ATOMIC_FLAG_INIT;

	if (mcast_forked())
		return mcast_forked_text(err, errlen);
	if (!atomic_flag_test_and_set(&registered))
		on_exit(leave_groups, NULL);
	return MCAST_OK;
}
