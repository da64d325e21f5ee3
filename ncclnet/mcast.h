/* mcast.h: the C API of libnccl-net-mcast.so, as torch_mcast uses it.
 *
 * Conventions. Handles are positive integers, never reused in a process; no
 * pointer of the library's is handed out, except by mcast_place. Every call that can fail returns 0 or
 * an MCAST_E_* code and, when err is not NULL, writes a zero-terminated message
 * of at most errlen bytes to err; mcast_error_rank says which rank it is about.
 * Buffers given to an operation belong to the library until its work is done;
 * nothing is kept afterwards. Calls may come from any thread. Operations of one
 * group must be posted in the same order by every rank; Allgather, Broadcast
 * and Barrier form one order, Reduce-Scatter another. The two wait for each
 * other only where an Allreduce, which is both, stands between.
 */
#ifndef MCAST_H
#define MCAST_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a release promises. Within one MCAST_ABI a function, a constant and a
 * field keep their name, their form and their meaning; new ones may come. A change
 * that would break a program built with an older header makes MCAST_ABI larger. A
 * program that is built with one header and run with another release's library
 * compares its MCAST_ABI with mcast_abi(). The library has no soname, since NCCL
 * loads it by the name of its file: a linked program needs
 * libnccl-net-mcast.so, and not a file of one MCAST_ABI. All ranks of a job run
 * one build: ranks with another version of the protocol are refused in words. */
#define MCAST_ABI 2

/* BEGIN errors: written by "go generate ./internal/api" from internal/api/errors.go */
/* Error codes. */
enum {
	MCAST_OK = 0,
	/* A wrong argument, setting or option; the message names it and the allowed values. */
	MCAST_E_ARGUMENT = 1,
	/* The machine lacks something that the group needs; the message says what. */
	MCAST_E_UNAVAILABLE = 2,
	/* The time given to a wait or to a join ran out (a join has MCAST_JOIN_TIMEOUT at most). */
	MCAST_E_TIMEOUT = 3,
	/* A rank died, stopped, was cut off, left or aborted; its number comes with the error. */
	MCAST_E_RANK = 4,
	/* Ranks disagree about an operation or a setting. */
	MCAST_E_MISMATCH = 5,
	/* The group, endpoint or work is unknown or closed. */
	MCAST_E_CLOSED = 6,
	/* Too many operations, 1024, are waiting already. */
	MCAST_E_BUSY = 7,
	/* Something else failed: the operating system, or the library has a defect. */
	MCAST_E_INTERNAL = 8,
};
/* END errors */

/* Element types: NCCL's numbers, and two of our own. The 8-bit floats are OCP's
 * (E4M3 without infinities); larger values become their largest number, as in
 * NCCL. */
/* BEGIN types: internal/api writes them */
enum {
	MCAST_I8 = 0,
	MCAST_U8 = 1,
	MCAST_I16 = 100,
	MCAST_U16 = 101,
	MCAST_I32 = 2,
	MCAST_U32 = 3,
	MCAST_I64 = 4,
	MCAST_U64 = 5,
	MCAST_E4M3 = 10,
	MCAST_E5M2 = 11,
	MCAST_F16 = 6,
	MCAST_BF16 = 9,
	MCAST_F32 = 7,
	MCAST_F64 = 8,
};
/* END types */

/* Reductions: NCCL's numbers, and three of our own, which combine the bits of integers. */
enum {
	MCAST_SUM = 0,
	MCAST_PROD = 1,
	MCAST_MAX = 2,
	MCAST_MIN = 3,
	MCAST_AVG = 4,
	MCAST_PREMUL_SUM = 5,
	MCAST_BAND = 6,
	MCAST_BOR = 7,
	MCAST_BXOR = 8,
};

/* mcast_version returns e.g. "0.1.0 (go1.26, linux/amd64, avx512)". Static. */
const char *mcast_version(void);

/* mcast_abi returns the MCAST_ABI that the library was built with. */
int mcast_abi(void);

/* mcast_error_rank returns the number of the rank that the last call of this
 * thread that failed was about, such as the one that died or did not come; -1:
 * none in particular. */
int mcast_error_rank(void);

/* The most bytes that mcast_open writes to blob. */
#define MCAST_BLOB_MAX 2048

/* mcast_open starts rank `rank` of `size` and returns in *endpoint a handle,
 * and in blob (cap bytes, *len used; MCAST_BLOB_MAX are always enough) what the
 * other ranks need to reach it. If cap is too small it returns MCAST_E_ARGUMENT,
 * with the needed size in *len. Exchange the blobs by any means, then call mcast_join.
 * options: NULL or a list "NAME=value\nNAME=value" that overrides MCAST_*
 * variables of the environment for this group, e.g. "MCAST_FABRIC=shm". */
int mcast_open(int rank, int size, const char *options, void *blob, size_t cap, size_t *len,
	int64_t *endpoint, char *err, size_t errlen);

/* mcast_join connects all ranks. blobs: size blobs one after another in rank
 * order, lens[i] bytes each. Ends the endpoint whether it succeeds or not.
 * It takes at most timeout_ms, and never more than MCAST_JOIN_TIMEOUT, which
 * timeout_ms <= 0 means. Blocks. */
int mcast_join(int64_t endpoint, const void *blobs, const size_t *lens, int64_t timeout_ms,
	int64_t *group, char *err, size_t errlen);

/* mcast_close_endpoint gives up a rank that will not join, because the
 * exchange of the blobs has failed. */
int mcast_close_endpoint(int64_t endpoint, char *err, size_t errlen);

/* Operations return at once with a work handle; see mcast_wait.
 * Allgather: send is bytes long, recv size*bytes; in place when send is
 * recv + rank*bytes. */
int mcast_allgather(int64_t group, const void *send, void *recv, size_t bytes,
	int64_t *work, char *err, size_t errlen);
/* Where MCAST_OUTPUTS is set, the result of an Allgather may lie once in memory
 * that the ranks of a host share: recv of mcast_allgather is then what mcast_place
 * has returned, one place for each Allgather. All ranks of a group reserve the
 * same in the same order.
 * mcast_reserve returns in *output a handle of a place for size*bytes; 0: there
 * is none, on any rank of this host. */
int mcast_reserve(int64_t group, size_t bytes, int64_t *output, char *err, size_t errlen);
/* mcast_place returns in *at the address of a reserved place, once no rank of
 * the host uses the result that was there before. Write only your own shard there,
 * before it is gathered. NULL: a rank had to give up, and the result must lie in
 * memory of your own; the handle is gone. It blocks, at most timeout_ms (<0: for
 * ever). After MCAST_E_TIMEOUT, with a message that names a rank that still holds the
 * place, it may be called again. */
int mcast_place(int64_t output, int64_t timeout_ms, void **at, char *err, size_t errlen);
/* mcast_release gives a place back; its memory must not be used any more. An
 * Allgather in flight there goes on first. The memory stays until then, even if
 * the group is closed. */
int mcast_release(int64_t output);
/* mcast_register lets an RDMA device send the shards of mcast_allgather and
 * mcast_broadcast directly from memory, without a copy. The right neighbour reads
 * there the parts of a result that it has lost. It returns a handle in
 * *registration. The memory must stay mapped until mcast_deregister: if it is
 * unmapped before, the device sends the bytes that were there. The call also
 * succeeds, and copies are made, in a group with a fabric that copies, and where the
 * device cannot have the memory (a warning says why). Memory of the host only. */
int mcast_register(int64_t group, const void *memory, size_t bytes, int64_t *registration, char *err, size_t errlen);
/* mcast_deregister takes memory from the device. No operation that uses it is in
 * flight. It is called once for each mcast_register, also after mcast_close. */
int mcast_deregister(int64_t registration, char *err, size_t errlen);
/* Broadcast of bytes from root's buf to everybody's buf. */
int mcast_broadcast(int64_t group, void *buf, size_t bytes, int root,
	int64_t *work, char *err, size_t errlen);
/* Reduce-Scatter: send holds size*count elements, recv count; recv may be
 * send + rank*count elements. factor is used by MCAST_PREMUL_SUM alone (each
 * input is multiplied by it first). Sums run in a fixed order (the other ranks'
 * in rank order, then this one's; floats below 32 bits all in rank order): the same inputs
 * give the same bits, through a switch as well unless MCAST_SWITCH_MODE=fast; a
 * tree of switches adds partial sums, and gives the same bits in every run. */
int mcast_reduce_scatter(int64_t group, const void *send, void *recv, size_t count,
	int dtype, int op, double factor, int64_t *work, char *err, size_t errlen);
/* Reduce of count elements to one rank, the root. recv is looked at there alone (else
 * it may be NULL), and may be send. It stands in the order of Reduce-Scatter, and sums as that does. */
int mcast_reduce(int64_t group, const void *send, void *recv, size_t count,
	int dtype, int op, double factor, int root, int64_t *work, char *err, size_t errlen);
/* Allreduce of count elements; recv may be send, otherwise they must not
 * overlap. It takes a place in both orders, Reduce-Scatter's and Allgather's. All
 * ranks get the same bits.
 * Up to 64 KiB over all ranks' inputs, headers included, it is one Allgather
 * that every rank reduces for itself. */
int mcast_allreduce(int64_t group, const void *send, void *recv, size_t count,
	int dtype, int op, double factor, int64_t *work, char *err, size_t errlen);
int mcast_barrier(int64_t group, int64_t *work, char *err, size_t errlen);

/* Messages from rank to rank. A send is done when a receive of the other rank has matched it and all bytes are on their
 * way; a receive when they are there. Receives are matched in the order of posting, with messages of the same tag in
 * the order of sending; MCAST_ANY_SOURCE takes one from any rank. A message may be shorter than the receive's memory;
 * a longer one ends the group with MCAST_E_MISMATCH. Memory of the host only. */
enum { MCAST_ANY_SOURCE = -1 };
int mcast_send(int64_t group, const void *buf, size_t bytes, int to, uint64_t tag,
	int64_t *work, char *err, size_t errlen);
int mcast_recv(int64_t group, void *buf, size_t bytes, int from, uint64_t tag,
	int64_t *work, char *err, size_t errlen);
/* mcast_source says which rank has sent the message of a receive that is done, and how many bytes. */
int mcast_source(int64_t work, int *rank, size_t *bytes, char *err, size_t errlen);
/* Three collectives are made of such messages, and form an order of their own.
 * All-to-all: rank r gets sent[r] bytes of send, and received[r] bytes of recv come from it, in rank order without
 * gaps. Both arrays have an entry for each rank. */
int mcast_all_to_all(int64_t group, const void *send, void *recv, const size_t *sent, const size_t *received,
	int64_t *work, char *err, size_t errlen);
/* Gather of the ranks' bytes into size*bytes of root's recv, and Scatter of size*bytes of root's send. The other
 * ranks' recv of the one, and send of the other, is not looked at. The root's own part may lie in its place. */
int mcast_gather(int64_t group, const void *send, void *recv, size_t bytes, int root,
	int64_t *work, char *err, size_t errlen);
int mcast_scatter(int64_t group, const void *send, void *recv, size_t bytes, int root,
	int64_t *work, char *err, size_t errlen);

/* The same on memory of a CUDA device: addresses are the device's, and an operation has its place in the
 * order of the device's commands. Its input is read, and its output written, after the commands that the stream
 * has queued before the call. The call does not wait for the device, as long as the driver's queue has room, nor does
 * mcast_device_follow. Such operations and those on memory of the host stand in the same orders. They need a
 * CUDA driver of 11.7 or newer, which is loaded with the first; without one, or where its streams cannot wait
 * for memory (WSL, some virtual GPUs), the call fails with MCAST_E_UNAVAILABLE. An operation that is recorded into
 * a CUDA graph is refused. */
struct mcast_stream {
	uint64_t size; /* sizeof(struct mcast_stream) */
	/* A CUstream, the current one of the caller; 0 is the legacy default stream. */
	uint64_t stream;
	/* If the operation is not done so long after its input was there, the group ends on all ranks, as by
	 * mcast_abort, so that no stream waits for ever. 0: no limit; less is refused. */
	int64_t timeout_ms;
	/* The device, as the driver numbers those of this process. */
	int64_t device;
};
int mcast_device_allgather(int64_t group, const struct mcast_stream *at, uint64_t send, uint64_t recv, size_t bytes,
	int64_t *work, char *err, size_t errlen);
int mcast_device_broadcast(int64_t group, const struct mcast_stream *at, uint64_t buf, size_t bytes, int root,
	int64_t *work, char *err, size_t errlen);
int mcast_device_reduce_scatter(int64_t group, const struct mcast_stream *at, uint64_t send, uint64_t recv,
	size_t count, int dtype, int op, double factor, int64_t *work, char *err, size_t errlen);
int mcast_device_reduce(int64_t group, const struct mcast_stream *at, uint64_t send, uint64_t recv,
	size_t count, int dtype, int op, double factor, int root, int64_t *work, char *err, size_t errlen);
/* More than 1 MiB a rank goes in pieces; all ranks get the same bits. */
int mcast_device_allreduce(int64_t group, const struct mcast_stream *at, uint64_t send, uint64_t recv,
	size_t count, int dtype, int op, double factor, int64_t *work, char *err, size_t errlen);
/* mcast_device_follow makes commands that are queued on a stream of the device from now on wait for the results
 * of such a work. It returns the error of an operation that has failed by then. An operation that fails later
 * lets the stream go on, with 0xFF in each byte of the missing results: NaN, if they are floats.
 * mcast_test and mcast_wait tell of the results on the device; until then, or until a stream that follows
 * has come so far, the memory belongs to the library. A stream that is recorded into a CUDA graph is refused. */
int mcast_device_follow(int64_t work, uint64_t stream, char *err, size_t errlen);

/* mcast_test sets *done to 1 once a work is done, well or not. */
int mcast_test(int64_t work, int *done, char *err, size_t errlen);
/* mcast_wait blocks until a work is done, at most timeout_ms (<0: for ever),
 * and returns its outcome. After MCAST_E_TIMEOUT the work goes on. It may be
 * waited for again, by any thread: the outcome stays until mcast_forget. */
int mcast_wait(int64_t work, int64_t timeout_ms, char *err, size_t errlen);
/* mcast_account says how long a work that is done waited for each of five causes, in nanoseconds: ns[0] for older
 * operations, [1] for a sign that other ranks have come to it, [2] for its turn to send, [3] for bytes on their way,
 * [4] for the word of others at its end. Their sum is the time from posting to the end. MCAST_E_ARGUMENT: it is not
 * done, or is of a kind without an account (on a device's memory, mcast_leave). */
int mcast_account(int64_t work, uint64_t ns[5], char *err, size_t errlen);
/* mcast_forget drops the handle of a work, done or not; an operation in flight
 * goes on. Until then the work keeps memory, even if its group is closed. */
int mcast_forget(int64_t work);

/* mcast_info writes a JSON object about a group into buf: rank, size, fabric,
 * reason (why this fabric), interface, chunk_bytes, notes (list), allgather ("multicast",
 * "unicast" or "shared memory"), allgather_reason, reduce_scatter ("switch" or "direct",
 * now), reduce_scatter_reason, and more. *len is the length needed, the terminating zero included;
 * MCAST_E_ARGUMENT when cap is too small. */
int mcast_info(int64_t group, char *buf, size_t cap, size_t *len, char *err, size_t errlen);

/* mcast_communicators writes a JSON array into buf: the communicators of NCCL (2.21 and later)
 * in this process that have asked this library's tuner, oldest first. Each has id (never reused),
 * ranks, nodes, collnet (whether CollNet is connected and taken), why (not), paired (whether another
 * communicator of the same ranks has CollNet, which a choice for the switch needs), allgather_from and
 * reduce_scatter_from (from how many bytes in total it is taken where buffers are not registered
 * with NCCL; 0: never), allgather_alone_from and allgather_alone_to (from and up to how many bytes CollNet is
 * the faster for an Allgather that no Reduce-Scatter runs beside; from 0: never, to 0: no upper bound),
 * allgather_windows and reduce_scatter_windows (pieces that NCCL has handed to CollNet so far). *len and
 * errors: as mcast_info. */
int mcast_communicators(char *buf, size_t cap, size_t *len, char *err, size_t errlen);

/* mcast_trace writes the latest operations of the groups of this process (the newest 512 of each lane,
 * with their phases, waits and repairs) to a file that ui.perfetto.dev and chrome://tracing show, with the clock of
 * torch.profiler's traces: docs/how-to/monitor.md. MCAST_E_ARGUMENT: the file cannot be there (no such directory, no
 * permission, a directory or device has its name); MCAST_E_UNAVAILABLE: the file system is full or fails. Either names
 * the path and the cause, and no part of the file stays. Groups that are closed, or have MCAST_TRACE=off, are not in
 * it. */
int mcast_trace(const char *path, char *err, size_t errlen);

/* A net plugin tells a profiler plugin of NCCL (NCCL_PROFILER_PLUGIN) of each of its messages, from net ABI v11
 * (NCCL 2.28) on. In an event ncclProfileNetPlugin with this netPlugin.id, netPlugin.data is a struct
 * mcast_net_event. The upper bits of the id stand for this library, the lower 16 for the version of the struct. */
#define MCAST_NET_EVENT_ID ((int64_t)0x6d63 << 16 | 1)
enum { MCAST_NET_TCP = 1, MCAST_NET_SHM = 2, MCAST_NET_RDMA = 3 };
/* A message that has failed has its error in NCCL's log; one that is abandoned was in flight when NCCL closed the
 * connection. */
enum { MCAST_NET_IN_FLIGHT = 0, MCAST_NET_DONE = 1, MCAST_NET_FAILED = 2, MCAST_NET_ABANDONED = 3 };
/* The struct is the library's, and may be read inside startEvent and recordEventState alone. When the event starts,
 * all moments are 0 and the outcome is MCAST_NET_IN_FLIGHT. recordEventState (ncclProfilerNetPluginUpdate) brings the
 * complete struct, right before stopEvent. */
struct mcast_net_event {
	uint32_t connection; /* in this process, from 1 on; a connection goes one way */
	uint32_t sequence;   /* of the message on its connection, from 0 on */
	int32_t tag;         /* NCCL's */
	uint8_t sending;     /* 1: a send, 0: a receive */
	uint8_t over;        /* MCAST_NET_TCP, _SHM or _RDMA */
	uint8_t lanes;       /* TCP connections or queue pairs that the message is spread over */
	uint8_t outcome;
	uint64_t bytes;      /* size of the message; of the buffer, for a receive that is not done */
	/* Moments: nanoseconds of CLOCK_MONOTONIC; 0: the message did not get so far.
	 * From posted to begun a receive has waited for the peer's message, a send over RDMA for the peer's receive
	 * (its credit), and a send over TCP or shm for messages before it and room in the kernel's, or the ring's, buffer.
	 * From begun to moved bytes moved. From moved to done the kernel (zero-copy) or the device (acknowledgement) had
	 * the memory of a send, or NCCL did not ask. Of a receive over RDMA begun is when its (first) share was there. */
	uint64_t posted, begun, moved, done;
	char peer[128];      /* its address, as in NCCL's log */
};

/* BEGIN counters: written by "go generate ./internal/api" from internal/api/counters.go */
/* Counters of this rank since mcast_join. Times (_ns) are nanoseconds. size must be set to
 * sizeof(struct mcast_stats); newer libraries fill no more than that. docs/reference/counters.md says of
 * each whether it is normal. */
struct mcast_stats {
	uint64_t size;
	/* Allgathers, Broadcasts and Barriers done, the steps of Allreduces included. */
	uint64_t gather_ops;
	/* This rank's own shards in the Allgathers and Broadcasts that it has posted. */
	uint64_t gather_bytes;
	/* Bytes of Allgathers and Broadcasts sent by multicast, or written to shared memory, headers
	 * included. */
	uint64_t gather_sent_bytes;
	/* Bytes of control messages and repairs of Allgathers, Broadcasts and Barriers, sent to single
	 * ranks. */
	uint64_t gather_control_bytes;
	/* Bytes of Allgathers and Broadcasts received by multicast, or read from shared memory,
	 * headers included, repairs not. */
	uint64_t gather_received_bytes;
	/* Reduce-Scatters and Reduces done, the steps of Allreduces included: switch_ops and
	 * direct_ops together. */
	uint64_t reduce_ops;
	/* This rank's own results of the Reduce-Scatters and Reduces that it has posted. */
	uint64_t reduce_bytes;
	/* Bytes of Reduce-Scatters and Reduces sent to the switch or to other ranks, headers included.
	 * */
	uint64_t reduce_sent_bytes;
	/* Chunks that this rank asked for and that multicast did not bring after all. */
	uint64_t chunks_lost;
	/* Chunks that came by repair, over TCP or read by an RDMA device (chunks_read), because
	 * multicast had not brought them in time. */
	uint64_t chunks_repaired;
	/* Chunks and datagrams of the switch that this rank threw away on purpose. */
	uint64_t chunks_injected;
	/* Chunks that arrived and were of no use: mostly second copies, where a chunk came by
	 * multicast and by repair, else late or malformed ones. No data are missing. */
	uint64_t chunks_dropped;
	/* Time with an Allgather, Broadcast or Barrier in flight. */
	uint64_t gather_busy_ns;
	/* Time with a Reduce-Scatter or Reduce in flight. */
	uint64_t reduce_busy_ns;
	/* Time with an Allgather, Broadcast or Barrier and a Reduce-Scatter or Reduce in flight. */
	uint64_t overlap_ns;
	/* Time that Allgathers, Broadcasts and Barriers have waited for older ones, added up over the
	 * operations that are done. */
	uint64_t gather_queued_ns;
	/* Time that Reduce-Scatters and Reduces have waited for older ones, added up over the
	 * operations that are done. */
	uint64_t reduce_queued_ns;
	/* Time that Allgathers, Broadcasts and Barriers have waited for other ranks to post them,
	 * added up over the operations that are done. */
	uint64_t gather_peers_ns;
	/* Time that Reduce-Scatters and Reduces have waited for other ranks to post them, added up
	 * over the operations that are done. */
	uint64_t reduce_peers_ns;
	/* Time that Allgathers, Broadcasts and Barriers have waited with something to send, for a
	 * turn, credit or the foreground, added up over the operations that are done. */
	uint64_t gather_turn_ns;
	/* Time that Reduce-Scatters and Reduces have waited with something to send, for credit or the
	 * foreground, added up over the operations that are done. */
	uint64_t reduce_turn_ns;
	/* Time that Allgathers, Broadcasts and Barriers have waited for bytes on their way, added up
	 * over the operations that are done. */
	uint64_t gather_transfer_ns;
	/* Time that Reduce-Scatters and Reduces have waited for bytes on their way, added up over the
	 * operations that are done. */
	uint64_t reduce_transfer_ns;
	/* Time that Allgathers, Broadcasts and Barriers have waited for the word of other ranks, all
	 * bytes being there, added up over the operations that are done. */
	uint64_t gather_finish_ns;
	/* Time that Reduce-Scatters and Reduces have waited for the word of other ranks, all bytes
	 * being there, added up over the operations that are done. */
	uint64_t reduce_finish_ns;
	/* Bytes of Reduce-Scatters and Reduces received from the switch or from other ranks, headers
	 * included. */
	uint64_t reduce_received_bytes;
	/* Contributions that were sent to the switch again. */
	uint64_t reduce_resent;
	/* Datagrams that claimed to be the switch's and were garbled, or had a wrong tag: they were
	 * thrown away. */
	uint64_t reduce_refused;
	/* Of reduce_ops, operations done through the switch. Where the ranks of a host work together,
	 * an operation counts if all that this rank sent to other hosts for it went through the
	 * switch. */
	uint64_t switch_ops;
	/* Of reduce_ops, operations done directly, from the beginning or after the switch was lost. */
	uint64_t direct_ops;
	/* Times that the switch was given up, and operations went on directly. */
	uint64_t fallbacks;
	/* Of chunks_dropped, chunks that belong to none of the group's operations, do not prove
	 * MCAST_SECRET, or have a wrong checksum (MCAST_CHECKSUM). No operation failed for them: they
	 * are a stranger's, or have changed on their way. */
	uint64_t chunks_mismatched;
	/* Multicast datagrams that a firewall or security policy of this host refused; repairs bring
	 * what was in them. */
	uint64_t sends_refused;
	/* Multicast datagrams that were not sent because the interface was down or had no address;
	 * repairs bring what was in them. */
	uint64_t sends_offline;
	/* Multicast datagrams that were not sent because the interface's MTU has been lowered; repairs
	 * bring what was in them. */
	uint64_t sends_too_large;
	/* Causes of slowness that were logged and are in the notes of info(). */
	uint64_t warnings;
	/* Results from the switch that came twice, or that nothing waited for. No data are missing. */
	uint64_t reduce_dropped;
	/* Chunks that came from the left neighbour because multicast does not reach every rank, or
	 * MCAST_MULTICAST is off. */
	uint64_t chunks_relayed;
	/* Allgathers with a result that lies once in memory that the ranks of a host share. */
	uint64_t shared_ops;
	/* Bytes written to the memory that ranks of a host share where they work together, headers and
	 * control messages included. Other counters have the bytes sent to other hosts. */
	uint64_t node_sent_bytes;
	/* Bytes read from the memory that ranks of a host share where they work together, headers
	 * included. */
	uint64_t node_received_bytes;
	/* Operations on a GPU's tensors done; each is one or more operations of the other counters. */
	uint64_t device_ops;
	/* Bytes copied from a GPU to staging memory. */
	uint64_t device_out_bytes;
	/* Bytes copied from staging memory to a GPU. */
	uint64_t device_in_bytes;
	/* Pinned memory, streams and events that the GPU's driver was asked for. */
	uint64_t device_made;
	/* Chunks received by multicast that the kernel wrote to a wrong place, so that they were
	 * copied once more. */
	uint64_t chunks_misplaced;
	/* Of gather_sent_bytes, bytes that an RDMA device has read from registered memory by itself,
	 * without a copy. */
	uint64_t gather_lent_bytes;
	/* Times that memory was registered with the RDMA device of Allgathers and Broadcasts
	 * (ibv_reg_mr), its rings included. */
	uint64_t registrations;
	/* Times that memory could not be registered, so that chunks are copied on their way from
	 * there. */
	uint64_t registrations_refused;
	/* Of chunks_repaired, chunks that this rank's RDMA device has read from the left neighbour's
	 * memory; the others were pushed over TCP. */
	uint64_t chunks_read;
	/* Bytes of the chunks in chunks_read. */
	uint64_t chunks_read_bytes;
	/* Sends, receives, all-to-alls, gathers and scatters posted. */
	uint64_t message_ops;
	/* Bytes of messages sent to other ranks, headers included. */
	uint64_t message_sent_bytes;
	/* Bytes of messages received from other ranks, headers included. */
	uint64_t message_received_bytes;
};
/* END counters */
int mcast_stats(int64_t group, struct mcast_stats *stats, char *err, size_t errlen);

/* mcast_close leaves a group: it waits until all ranks close, as long as they
 * live, since others may still need this one, then frees the group. Operations
 * in flight fail with MCAST_E_CLOSED. A rank that waits for an operation that this
 * rank has not posted gets MCAST_E_RANK. */
int mcast_close(int64_t group, char *err, size_t errlen);
/* mcast_leave is mcast_close that returns at once, with a work that is done when
 * the group is closed. So several groups can be left at the same time, instead of
 * one after another. */
int mcast_leave(int64_t group, int64_t *work, char *err, size_t errlen);
/* mcast_abort ends a group on all ranks at once: operations fail with
 * MCAST_E_RANK and a message that names this rank and gives the reason, such as
 * "its script ended with ValueError". A mcast_close that waits ends. */
int mcast_abort(int64_t group, const char *reason, char *err, size_t errlen);
/* mcast_leave_at_exit makes this process leave the groups that are still open when
 * it ends by exit(). With status 0 it waits as mcast_close does. Any other
 * status is a failure: the groups end as by mcast_abort, with the status as the
 * reason, and nobody is waited for. A second call does nothing. */
int mcast_leave_at_exit(char *err, size_t errlen);

#ifdef __cplusplus
}
#endif
#endif
