/* The data path of the net plugin. A comm is one direction of one connection;
 * it is used by one thread at a time, different comms by any threads at once.
 * Nothing here waits, allocates per message or enters Go: bytes move inside
 * p2p_isend and p2p_test. Functions return one of P2P_*. */
#ifndef MCAST_P2P_H
#define MCAST_P2P_H

#include <stddef.h>
#include <stdint.h>

#include "../abi.h"

#pragma GCC visibility push(hidden)

enum {
	P2P_OK = 0,
	P2P_E_ARGUMENT = 1,
	P2P_E_REMOTE = 2,   /* the peer is gone */
	P2P_E_SYSTEM = 3,
	P2P_E_MISMATCH = 4, /* a send larger than the receive it meets */
};

enum {
	P2P_IN_FLIGHT = 32, /* requests of a comm, NCCL's NCCL_NET_MAX_REQUESTS */
	P2P_LANES = 16,     /* most sockets of a connection */
	P2P_RING = 1 << 30, /* most bytes of a ring */
};

struct p2p_comm;
struct p2p_request;

/* Starts to send size bytes. *req is NULL when 32 requests are in flight: ask
 * again. The data must stay as they are until the request is done, which may be
 * before the peer has posted a receive. key is the local one of registered memory
 * where an RDMA device moves the bytes, see p2p_device_of, else ignored. tag and
 * parent are NCCL's, for its profiler: p2p_profile. */
int p2p_isend(struct p2p_comm *c, const void *data, size_t size, uint32_t key, int tag, void *parent,
	struct p2p_request **req);

/* Starts to receive the next message, of at most size bytes. Always sets *req,
 * as p2p_isend does. Bytes past a shorter message stay as they are. key is the
 * remote one of registered memory. */
int p2p_irecv(struct p2p_comm *c, void *data, size_t size, uint32_t key, int tag, void *parent,
	struct p2p_request **req);

/* Starts to wait until a GPU sees the bytes that were received at data, in its
 * memory with this remote key. Only for a comm with a device. */
int p2p_iflush(struct p2p_comm *c, void *data, uint32_t key, struct p2p_request **req);

/* Asks whether a request is done, and does a piece of work if it is not.
 * *done = 1 frees the request, and sets *size to the message's (size may be NULL). After
 * an error all requests of the comm that are not done fail with it. */
int p2p_test(struct p2p_request *r, int *done, size_t *size);

/* What went wrong, with the peer's address: why the comm failed, or else why it
 * refused a call; empty if nothing did. */
const char *p2p_error(const struct p2p_comm *c);

struct p2p_comm *p2p_of(const struct p2p_request *r);

/* The protection domain of the RDMA device that moves a comm's bytes; NULL: none does. */
void *p2p_device_of(const struct p2p_comm *c);

/* Ends a comm and its requests, done or not. The peer's then fail, except that
 * it still receives what was sent before. */
void p2p_close(struct p2p_comm *c);

/* How a connection was agreed upon; for the Go side. */
struct p2p_setup {
	int sending;          /* else receiving */
	int lanes;            /* 1 to P2P_LANES; 1 with a ring */
	int fds[P2P_LANES];   /* connected TCP sockets, taken over on success */
	int memfd;            /* of the ring, stays the caller's; -1: bytes go over the sockets */
	struct p2p_verbs *verbs; /* queue pairs, taken over on success; there is one socket then. NULL: no device */
	size_t cut;           /* messages of this many bytes or more use all lanes; 0: the default */
	int sealed;           /* the kernel seals all bytes after the greeting (TLS) */
	int zerocopy;         /* 0 never, 1 always, 2 until the kernel says that it copies */
	unsigned timeout;     /* ms in which a peer must acknowledge some of the bytes sent; 0: as the kernel has it */
	const char *peer;     /* for messages, copied */
};

/* Returns NULL with errno set on failure; the sockets are then the caller's. */
struct p2p_comm *p2p_open(const struct p2p_setup *s);

/* From now on NCCL's profiler is told of each message of a comm that has a parent: struct mcast_net_event of
 * mcast.h. If it wants an event, the event starts inside p2p_isend or p2p_irecv, and ends inside p2p_test or
 * p2p_close. Called before the first message. */
void p2p_profile(struct p2p_comm *c, nccl_profiler profiler);

/* Bytes of a memfd that holds a ring with this capacity, a power of two. */
size_t p2p_ring_size(size_t capacity);

/* Ends each connection to a peer that has acknowledged nothing within the timeout,
 * and returns after how many ms to look again; 0: there is nothing to look at.
 * lost becomes the finding about the first of them, or empty. */
unsigned p2p_watch(char *lost, size_t size);

/* RDMA: for the Go side, which opens devices (package ibverbs). Functions return 0
 * or an errno, unless said. p2p_rdma_load is called before any other of them, and
 * returns NULL, or dlerror's words for the missing part. */
const char *p2p_rdma_load(const char *library);

struct p2p_device {
	void *pd; /* protection domain */
	int port, gid_index;
	int mtu; /* bytes */
	uint8_t gid[16];
};

/* Memory that a device and its peers may read and write. */
struct p2p_memory {
	void *mr;
	uint32_t local, remote; /* keys */
};
int p2p_rdma_register(void *pd, uintptr_t at, size_t size, struct p2p_memory *m);
int p2p_rdma_register_dmabuf(void *pd, uint64_t offset, size_t size, uintptr_t at, int fd, struct p2p_memory *m);
int p2p_rdma_deregister(struct p2p_memory *m);
int p2p_rdma_takes_dmabuf(void *pd); /* 1 or 0 */

/* Sent by each end of a connection: describes its queue pairs; little endian. */
struct p2p_introduction {
	uint32_t psn, mtu, lanes;
	uint32_t key;    /* of a sender's memory for offers */
	uint64_t offers; /* address of that memory */
	uint8_t gid[16];
	uint32_t number[P2P_LANES];
};

/* Makes the queue pairs of an end. NULL with errno set on failure; *what names the
 * call. They belong to the caller, until p2p_open or p2p_verbs_close. */
struct p2p_verbs *p2p_verbs_open(const struct p2p_device *d, int sending, int lanes, unsigned timeout, uint32_t psn,
				 struct p2p_introduction *own, const char **what);
/* Connects them to the peer's. The receiver may offer once the sender has joined. */
int p2p_verbs_join(struct p2p_verbs *v, const struct p2p_device *d, const struct p2p_introduction *own,
		   const struct p2p_introduction *peer, const char **what);
void p2p_verbs_close(struct p2p_verbs *v);

/* How a comm moves messages: connections or queue pairs, whether by a ring in shared memory, whether without a copy. */
void p2p_shape(const struct p2p_comm *c, int *lanes, int *ring, int *zerocopy);

#pragma GCC visibility pop

#endif
