/* Inside of a comm: requests, lanes and the byte streams under them. */
#ifndef MCAST_P2P_COMM_H
#define MCAST_P2P_COMM_H

#include <errno.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

#include "../mcast.h"
#include "p2p.h"

#pragma GCC visibility push(hidden)

/* Precedes a message's share on each lane it uses; little endian. */
struct header {
	uint16_t magic; /* and version */
	uint8_t lane;
	uint8_t lanes; /* that carry this message: 1 or all */
	uint32_t sequence;
	uint64_t size; /* of the whole message */
};

_Static_assert(sizeof(struct header) == 16, "16 bytes on the wire");

enum {
	HEADER = sizeof(struct header),
	STAGING = 36 << 10, /* bytes that one read may bring beyond the wanted ones; holds a message of 32 KiB */
	LARGE = 64 << 10, /* a message for which another system call does not matter; the least that is pinned */
	FEW = 2,            /* most receives in flight of a caller that waits for each message, not for a stream */
	PAGE = 4096,        /* shares begin at multiples of it */
	GATHER = 16,        /* iovecs of a write */
	PINS = 256,         /* zero-copy writes of a lane that the kernel holds */
};

struct p2p_request {
	struct p2p_comm *comm;
	char *data;
	size_t size;      /* of the message, once known */
	size_t capacity;  /* of a receive */
	unsigned pending; /* lanes that are not through, writes that are pinned; 0: done */
	int live;
	int flush;        /* no message */
	uint32_t key;     /* of registered memory */
	void *event;      /* of the profiler; NULL: it does not want one */
	struct header header;
};

struct lane;

/* A byte stream that never waits. send and recv return the bytes moved, 0 when
 * none can be now, or -1 with errno; recv's is ESHUTDOWN at the end. */
struct stream {
	ssize_t (*send)(struct lane *, struct iovec *, int, struct p2p_request *pin);
	ssize_t (*recv)(struct lane *, struct iovec *, int);
};

/* The outcome of a call that moved nothing: 0 if it may do so later, else -1. */
static inline ssize_t p2p_nothing(void) { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -1; }

struct ring;

struct lane {
	const struct stream *stream;
	struct p2p_comm *comm;
	int fd;
	int ended; /* all bytes that the peer sent were read */
	struct ring *ring;

	/* Requests with a share on this lane, in order. */
	struct p2p_request *queue[P2P_IN_FLIGHT];
	unsigned first, last;
	unsigned settled; /* requests before this one need the lane no more; equal to first, unless the kernel seals */
	size_t moved; /* bytes of the first request's header and share that have moved */

	/* Bytes read too early: a header, or some of the bytes behind it. */
	char *staged;
	size_t from, to, ahead; /* ahead: room */

	/* Small messages read in a row; whether the kernel may acknowledge them late. */
	unsigned small;
	int delayed_ack;
	/* Of lane 0: size of the latest message; see p2p_socket_peek: bytes that were read and are the kernel's still,
	 * and in how many reads. */
	size_t latest, peeked;
	unsigned peeks;

	/* Zero-copy writes by number, and the request that each one pins memory for. */
	uint32_t pinned, released;
	struct p2p_request *owner[PINS];

	/* Of a sealed lane: bytes that the kernel has taken; what TCP had before, see p2p_seal_settle. */
	uint64_t taken, before;

	/* The watch's: the kernel's counts of segments that came in, and of retransmissions by then. */
	uint32_t heard, retried;
	/* The watch's: bytes acknowledged; the last moment at which none was overdue; the last at which the peer was heard
	 * (both in ms that the watch ran). */
	uint64_t acked, since, answered;
};

struct p2p_comm {
	int sending, lanes, zerocopy, sealed;
	unsigned timeout;
	int error;
	int gone; /* the peer closed its end */
	size_t cut;
	unsigned idle;           /* steps in a row without effect */
	unsigned eager, skipped; /* idle steps until tests are thinned out; tests since */
	uint64_t until;          /* ns: tests do nothing before then; 0: they do */
	uint32_t sequence;
	uint32_t free; /* bit set: the request with this index is free */
	unsigned unanswered; /* see p2p_unanswered */
	int watched, closed;
	struct p2p_comm *next; /* that is watched */
	struct p2p_verbs *verbs;
	struct p2p_request requests[P2P_IN_FLIGHT];
	nccl_profiler profiler; /* or NULL */
	struct mcast_net_event events[P2P_IN_FLIGHT]; /* for it, by request */
	struct lane lane[P2P_LANES];
	char peer[128];
	char text[384];
};

static inline void p2p_push(struct lane *l, struct p2p_request *r) { l->queue[l->last++ % P2P_IN_FLIGHT] = r; }

/* Requests whose share has moved need this lane no more. */
static inline void p2p_settle(struct lane *l)
{
	while (l->settled != l->first)
		l->queue[l->settled++ % P2P_IN_FLIGHT]->pending--;
}

/* The part of a message that lies on a lane; may be empty. */
static inline size_t p2p_share(const struct p2p_request *r, unsigned lane, char **at)
{
	unsigned lanes = r->header.lanes;
	size_t part = r->size, from;

	if (lanes > 1)
		part = ((r->size + lanes - 1) / lanes + PAGE - 1) & ~(size_t)(PAGE - 1);
	from = part * lane < r->size ? part * lane : r->size;
	*at = r->data + from;
	return r->size - from < part ? r->size - from : part;
}

static inline uint64_t p2p_now(void) /* ns */
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* profile.c: tell the profiler of a request. stop does nothing if the event has stopped, or there is none. */
void p2p_event_start(struct p2p_request *r, int tag, void *parent);
void p2p_event_stop(struct p2p_request *r, int outcome);
/* The first byte of a message moves; one of its shares has moved. */
static inline void p2p_event_begun(struct p2p_request *r)
{
	uint64_t *begun = &r->comm->events[r - r->comm->requests].begun;

	if (r->event != NULL && *begun == 0)
		*begun = p2p_now();
}
static inline void p2p_event_moved(struct p2p_request *r)
{
	if (r->event != NULL)
		r->comm->events[r - r->comm->requests].moved = p2p_now();
}

/* frame.c: one step of progress; true if something moved. */
int p2p_step(struct p2p_comm *c);

/* end.c: the first failure counts. */
void p2p_fail(struct p2p_comm *c, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* A failure of the connection itself, with errno. p2p_lost_reading is for a call that reads: there the kernel may also
 * say that the peer has not sent the record that came. */
void p2p_lost(struct p2p_comm *c, const char *doing);
void p2p_lost_reading(struct p2p_comm *c, const char *doing);
int p2p_alive(struct p2p_comm *c); /* looks at lane 0 for the end of the peer; a sender also hears why */
void p2p_farewell(struct p2p_comm *c); /* tells a sender with a device how many messages have been received */

/* socket.c */
extern const struct stream p2p_socket;
int p2p_socket_setup(struct p2p_comm *c);
int p2p_socket_release(struct lane *l); /* collects zero-copy completions; true if there were any */
ssize_t p2p_socket_peek(struct lane *l, struct iovec *iov); /* as recv, where messages are small */
void p2p_socket_acknowledge(struct lane *l, size_t size); /* of a message that was read */
int p2p_socket_reset(struct lane *l); /* ends a connection at once; false if that is up to its last descriptor */
void p2p_socket_abort(struct lane *l); /* ends a connection that sends from the caller's memory */

/* watch.c: a comm that sends over sockets is watched from p2p_open on. */
#define P2P_UNANSWERED \
	"nothing of what was sent is acknowledged for %u ms, in segments of up to %u bytes: " \
	"the peer is gone, or they do not pass"
/* The largest segments of a connection that the watch has given up, else 0. */
static inline unsigned p2p_unanswered(const struct p2p_comm *c)
{
	return __atomic_load_n(&c->unanswered, __ATOMIC_ACQUIRE);
}
void p2p_watch_add(struct p2p_comm *c);
/* Ends the connection. False if the watch keeps the comm until what was sent has
 * arrived, and frees it then. */
int p2p_watch_close(struct p2p_comm *c);

/* seal.c: a comm that sends and is sealed. */
int p2p_seal_begin(struct lane *l);  /* before anything is sent; -1 with errno */
int p2p_seal_settle(struct lane *l); /* true if TCP has all that was taken */

/* ring.c */
extern const struct stream p2p_ring;
struct ring *p2p_ring_map(int memfd);
void p2p_ring_unmap(struct ring *g);

#pragma GCC visibility pop

#endif
