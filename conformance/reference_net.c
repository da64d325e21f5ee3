/* Point to point: one TCP socket a connection. A message is its size in eight
 * bytes, then its bytes; receives match in the order in which they are posted. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "reference.h"

struct message {
	struct ref_request request;
	char *data;
	size_t size;         /* posted; of a receive the size of its buffer */
	uint64_t header;     /* the size on the wire */
	size_t header_moved, moved;
	bool flush;
	void *event; /* the profiler's */
	char last; /* mutant lost-last-byte: what lay there before */
};

struct net_comm {
	struct ref_comm comm;
	int fd, error;
	bool corked; /* mutant early-done-send: nothing is written for a while */
	unsigned posted;
	/* messages[head % 32] is the oldest not complete, tail the next free */
	unsigned head, tail;
	struct message messages[ABI_REQUESTS];
	struct message flushes[ABI_REQUESTS];
};

static abi_profile *profiler;

void ref_profile(abi_profile *profile) { profiler = profile; }

/* A profiler is told a request's size, under an id of ours: NCCL's own plugins have 1 and 2 in the upper half. */
enum { PROFILE_ID = 0x7265 << 16 | 1 };

static void tell_start(struct message *m, void *parent)
{
	static void *first;

	if (!mutant("profiler-stale"))
		m->event = NULL;
	if (!profiler || (!parent && !mutant("profiler-no-parent")))
		return;
	first = first ? first : parent;
	profiler(&m->event, ABI_EVENT_START, mutant("profiler-parent") ? first : parent, PROFILE_ID, &m->size);
}

static void tell_stop(struct message *m)
{
	if (!profiler || !m->event)
		return;
	profiler(&m->event, ABI_EVENT_STOP, NULL, PROFILE_ID, NULL);
	if (mutant("profiler-twice"))
		profiler(&m->event, ABI_EVENT_STOP, NULL, PROFILE_ID, NULL);
	if (!mutant("profiler-stale"))
		m->event = NULL;
}

static struct net_comm *make_comm(int kind, int fd)
{
	struct net_comm *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->comm.kind = kind;
	c->fd = fd;
	pthread_mutex_init(&c->comm.lock, NULL);
	for (int i = 0; i < ABI_REQUESTS; i++)
		c->messages[i].request.comm = c->flushes[i].request.comm = &c->comm;
	if (mutant("leaks-fds"))
		(void)!open("/dev/null", O_RDONLY | O_CLOEXEC);
	return c;
}

/* Returns at once; *send_comm is NULL while the connection is being made. */
int ref_net_connect(void *ctx, int dev, void *handle, void **send_comm, struct abi_device **device)
{
	struct ref_handle h;
	size_t moved = 0;
	int rc, fd;

	(void)ctx, (void)device;
	*send_comm = NULL;
	if (dev != 0)
		return ABI_INVALID_ARGUMENT;
	memcpy(&h, handle, sizeof(h));
	if (!ref_handle_ok(&h))
		return ABI_INVALID_ARGUMENT;
	if (h.fd == 0) {
		rc = ref_dial(&h, &fd);
		if (rc)
			return rc;
		h.fd = fd + 1;
	}
	/* eight bytes into an empty socket: all of them or none */
	rc = ref_push(h.fd - 1, &h.cookie, sizeof(h.cookie), &moved);
	fd = h.fd - 1;
	if (rc || moved == sizeof(h.cookie))
		h.fd = 0;
	memcpy(handle, &h, sizeof(h));
	if (rc) {
		close(fd);
		return rc;
	}
	if (moved == 0)
		return ABI_SUCCESS;
	if (mutant("blocking-connect")) {
		char accepted;

		fcntl(fd, F_SETFL, 0);
		(void)!recv(fd, &accepted, 1, 0);
		fcntl(fd, F_SETFL, O_NONBLOCK);
	}
	*send_comm = make_comm(REF_SEND, fd);
	return *send_comm ? ABI_SUCCESS : ABI_SYSTEM_ERROR;
}

/* Returns at once; *recv_comm is NULL while nobody has come. */
int ref_net_accept(void *listen_comm, void **recv_comm, struct abi_device **device)
{
	static struct net_comm *before;
	struct ref_listen *l = listen_comm;
	struct net_comm *c;
	uint64_t cookie;
	size_t moved = 0;
	int rc, fd;

	(void)device;
	*recv_comm = NULL;
	if (mutant("blocking-accept"))
		fcntl(l->fd, F_SETFL, 0);
	if (l->pending < 0)
		l->pending = ref_take(l->fd);
	if (l->pending < 0)
		return ABI_SUCCESS;
	fd = l->pending;
	rc = ref_pull(fd, &cookie, sizeof(cookie), &moved);
	if (rc == ABI_SUCCESS && moved == 0)
		return ABI_SUCCESS;
	l->pending = -1;
	if (rc || moved < sizeof(cookie) || cookie != l->handle.cookie) {
		close(fd); /* not ours, or gone again: wait for the next */
		return ABI_SUCCESS;
	}
	if (mutant("blocking-connect"))
		(void)!send(fd, "", 1, MSG_NOSIGNAL);
	c = make_comm(REF_RECV, fd);
	if (c && mutant("mixes-comms")) {
		if (before) {
			c->fd = before->fd;
			before->fd = fd;
			before = NULL;
		} else {
			before = c;
		}
	}
	*recv_comm = c;
	return c ? ABI_SUCCESS : ABI_SYSTEM_ERROR;
}

static int push_message(struct net_comm *c, struct message *m)
{
	int rc = ref_push(c->fd, &m->header, sizeof(m->header), &m->header_moved);

	if (rc == ABI_SUCCESS && m->header_moved == sizeof(m->header))
		rc = ref_push(c->fd, m->data, m->size, &m->moved);
	return rc;
}

static void spoil(struct message *m)
{
	size_t size = m->header;

	if (size && mutant("wrong-byte"))
		m->data[size / 2] ^= 1;
	if (size && mutant("lost-last-byte"))
		m->data[size - 1] = m->last;
	if (mutant("writes-beyond"))
		m->data[size] ^= 0x55;
}

static int pull_message(struct net_comm *c, struct message *m)
{
	int rc = ref_pull(c->fd, &m->header, sizeof(m->header), &m->header_moved);

	if (rc || m->header_moved < sizeof(m->header))
		return rc;
	if (m->header > m->size)
		return ABI_INVALID_USAGE; /* the sender's message does not fit */
	if (m->moved == 0 && m->header)
		m->last = m->data[m->header - 1];
	rc = ref_pull(c->fd, m->data, m->header, &m->moved);
	if (rc == ABI_SUCCESS && m->moved == m->header)
		spoil(m);
	return rc;
}

/* Moves what can move, oldest message first. Call with the lock held. */
static void progress(struct net_comm *c)
{
	while (!c->error && !c->corked && c->head != c->tail) {
		struct message *m = &c->messages[c->head % ABI_REQUESTS];

		c->error = c->comm.kind == REF_SEND ? push_message(c, m) : pull_message(c, m);
		if (c->error || m->header_moved < sizeof(m->header) || m->moved < m->header)
			return;
		m->request.done = true;
		tell_stop(m);
		if (m->request.reported) /* mutants that reported it early */
			m->request.used = false;
		c->head++;
	}
}

static void *uncork(void *comm)
{
	struct net_comm *c = comm;

	usleep(20000);
	pthread_mutex_lock(&c->comm.lock);
	c->corked = false;
	progress(c);
	pthread_mutex_unlock(&c->comm.lock);
	return NULL;
}

/* Queues a message; *request is NULL if all are taken: NCCL asks again. */
static int post(struct net_comm *c, void *data, size_t size, void *mhandle, void *phandle, void **request)
{
	struct message *m = &c->messages[c->tail % ABI_REQUESTS];
	int rc;

	if (!ref_covers(mhandle, data, size))
		return ABI_INVALID_ARGUMENT;
	if (__atomic_load_n(&c->comm.registering, __ATOMIC_SEQ_CST))
		return ABI_INTERNAL_ERROR;
	pthread_mutex_lock(&c->comm.lock);
	rc = c->error;
	*request = NULL;
	if (!rc && c->tail - c->head >= 16 && mutant("fails-17th"))
		rc = ABI_INTERNAL_ERROR;
	if (!rc && !m->request.used) {
		memset(&m->header, 0, offsetof(struct message, event) - offsetof(struct message, header));
		m->request.used = true;
		m->request.done = m->request.reported = false;
		m->data = data;
		m->size = size;
		m->header = size;
		if (c->comm.kind == REF_RECV && c->tail != c->head && mutant("swapped-messages")) {
			struct message *b = &c->messages[(c->tail - 1) % ABI_REQUESTS];

			if (b->header_moved == 0 && b->size == size) {
				m->data = b->data;
				b->data = data;
			}
		}
		tell_start(m, phandle);
		c->tail++;
		c->posted++;
		*request = &m->request;
		if (c->comm.kind == REF_SEND && mutant("early-done-send") && !c->corked) {
			pthread_t thread;

			c->corked = true;
			if (pthread_create(&thread, NULL, uncork, c) == 0)
				pthread_detach(thread);
		}
		progress(c);
	}
	pthread_mutex_unlock(&c->comm.lock);
	return rc;
}

int ref_net_isend(void *comm, void *data, size_t size, int tag, void *mhandle, void *phandle, void **request)
{
	(void)tag;
	if (size == 0 && mutant("crash-zero"))
		raise(SIGSEGV);
	return post(comm, data, size, mhandle, phandle, request);
}

int ref_net_irecv(void *comm, int n, void **data, size_t *sizes, int *tags, void **mhandles, void **phandles,
	void **request)
{
	(void)tags;
	if (mutant("keeps-request") && *request)
		return ABI_SUCCESS;
	if (n != 1) /* maxRecvs is 1 */
		return ABI_INVALID_ARGUMENT;
	return post(comm, data[0], sizes[0], mhandles[0], phandles ? phandles[0] : NULL, request);
}

/* Host memory needs no flush: a request that is done when it is asked. */
int ref_net_iflush(void *comm, int n, void **data, int *sizes, void **mhandles, void **request)
{
	struct net_comm *c = comm;

	(void)n, (void)data, (void)sizes, (void)mhandles;
	*request = NULL;
	pthread_mutex_lock(&c->comm.lock);
	for (int i = 0; i < ABI_REQUESTS && !*request; i++) {
		if (!c->flushes[i].request.used) {
			c->flushes[i].request.used = c->flushes[i].request.done = true;
			c->flushes[i].flush = true;
			*request = &c->flushes[i].request;
		}
	}
	pthread_mutex_unlock(&c->comm.lock);
	return ABI_SUCCESS;
}

static bool early(struct net_comm *c)
{
	return mutant(c->comm.kind == REF_SEND ? "early-done-send" : "early-done-receive");
}

/* A request that is done is free again; sizes may be NULL. */
int ref_net_test(void *request, int *done, int *sizes)
{
	struct message *m = request;
	struct net_comm *c = (struct net_comm *)m->request.comm;
	int rc = ABI_SUCCESS;

	pthread_mutex_lock(&c->comm.lock);
	if (!m->request.done)
		progress(c);
	*done = m->request.done || (early(c) && !c->error);
	if (*done && !m->flush && mutant("dropped-request") && (unsigned)(m - c->messages) == 2)
		*done = 0;
	if (*done) {
		size_t size = m->flush ? 0 : m->header;

		if (mutant("wrong-size"))
			size = m->size;
		if (sizes && !(size == 0 && mutant("zero-size")))
			sizes[0] = (int)size;
		m->request.reported = true;
		if (m->request.done)
			m->request.used = false;
	} else if (c->error) {
		rc = c->error;
	}
	pthread_mutex_unlock(&c->comm.lock);
	return rc;
}

/* Requests in flight are dropped: the peer sees the end of the stream. */
int ref_net_close(void *comm)
{
	struct net_comm *c = comm;

	if (c->head != c->tail && mutant("close-hangs"))
		for (;;)
			pause();
	for (unsigned i = c->head; i != c->tail && !mutant("profiler-no-end"); i++)
		tell_stop(&c->messages[i % ABI_REQUESTS]);
	close(c->fd);
	c->fd = -1;
	if (mutant("early-done-send"))
		return ABI_SUCCESS; /* its thread may still look at it */
	ref_drop_mrs(&c->comm);
	pthread_mutex_destroy(&c->comm.lock);
	free(c);
	return ABI_SUCCESS;
}
