/* CollNet connect: all ranks have a comm afterwards or none has. NCCL judges the
 * outcome on each node alone, and one rank that goes on without the others waits
 * for ever. So links are made first; then each rank tells rank 0 whether it has
 * all of them, and rank 0 tells all what holds for all. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "reference_coll.h"

enum { LINK_MS = 3000, VERDICT_MS = 1500, GREETING_MS = 1000 };

struct greeting {
	uint64_t cookie; /* of the rank that is greeted */
	uint64_t group;  /* all cookies folded: the same handles, the same order */
	int32_t nranks, rank;
};

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static struct coll_comm *open_comms;

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Waits until fd can be read or written; false when the time is up. */
static bool wait_for(int fd, short events, int64_t deadline)
{
	int64_t left = deadline - now_ms();
	struct pollfd p = {.fd = fd, .events = events};

	if (mutant("coll-connect-hangs"))
		return poll(&p, 1, -1) > 0;
	return left > 0 && poll(&p, 1, (int)left) > 0;
}

static int push_all(int fd, const void *data, size_t size, int64_t deadline)
{
	size_t moved = 0;

	for (;;) {
		int rc = ref_push(fd, data, size, &moved);

		if (rc || moved == size)
			return rc;
		if (!wait_for(fd, POLLOUT, deadline))
			return ABI_REMOTE_ERROR;
	}
}

static int pull_all(int fd, void *data, size_t size, int64_t deadline)
{
	size_t moved = 0;

	for (;;) {
		int rc = ref_pull(fd, data, size, &moved);

		if (rc || moved == size)
			return rc;
		if (!wait_for(fd, POLLIN, deadline))
			return ABI_REMOTE_ERROR;
	}
}

/* Takes one connection; a stranger's is dropped. */
static int take_link(struct coll_comm *c, struct ref_listen *l, const struct greeting *mine, int64_t deadline)
{
	struct greeting g;
	int fd;

	if (!wait_for(l->fd, POLLIN, deadline))
		return ABI_REMOTE_ERROR;
	fd = ref_take(l->fd);
	if (fd < 0)
		return ABI_SUCCESS;
	if (pull_all(fd, &g, sizeof(g), now_ms() + GREETING_MS) || g.cookie != mine->cookie || g.group != mine->group ||
	    g.nranks != c->nranks || g.rank <= c->rank || g.rank >= c->nranks || c->links[g.rank].fd >= 0) {
		close(fd);
		return ABI_SUCCESS;
	}
	c->links[g.rank].fd = fd;
	return ABI_SUCCESS;
}

/* Lower ranks are called, higher ones call. */
static int make_links(struct coll_comm *c, struct ref_handle *const *handles, struct ref_listen *l)
{
	struct greeting g = {.nranks = c->nranks, .rank = c->rank};
	int64_t deadline = now_ms() + LINK_MS;
	int rc = ABI_SUCCESS;

	for (int r = 0; r < c->nranks; r++)
		g.group = (g.group ^ handles[r]->cookie) * 0x9e3779b97f4a7c15ull;
	for (int r = 0; r < c->rank && rc == ABI_SUCCESS; r++) {
		rc = ref_dial(handles[r], &c->links[r].fd);
		g.cookie = handles[r]->cookie;
		if (rc == ABI_SUCCESS)
			rc = push_all(c->links[r].fd, &g, sizeof(g), deadline);
	}
	g.cookie = l->handle.cookie;
	for (int r = c->rank + 1; r < c->nranks && rc == ABI_SUCCESS; r++)
		while (rc == ABI_SUCCESS && c->links[r].fd < 0)
			rc = take_link(c, l, &g, deadline);
	return rc;
}

/* What holds for all ranks, given what holds for this one. */
static int verdict(struct coll_comm *c, int rc)
{
	int64_t deadline = now_ms() + LINK_MS + VERDICT_MS;
	char good = rc == ABI_SUCCESS, other;

	if (c->rank > 0) {
		int to = c->links[0].fd;

		if (to < 0 || push_all(to, &good, 1, deadline) || !good)
			return ABI_REMOTE_ERROR;
		return pull_all(to, &good, 1, deadline + VERDICT_MS) || !good ? ABI_REMOTE_ERROR : ABI_SUCCESS;
	}
	for (int r = 1; r < c->nranks; r++)
		if (c->links[r].fd < 0 || pull_all(c->links[r].fd, &other, 1, deadline) || !other)
			good = 0;
	for (int r = 1; r < c->nranks; r++)
		if (c->links[r].fd >= 0 && push_all(c->links[r].fd, &good, 1, deadline))
			good = 0; /* gone since: its operations will fail */
	return good || mutant("coll-connect-split") ? ABI_SUCCESS : ABI_REMOTE_ERROR;
}

static void mix(struct coll_comm *c)
{
	struct coll_comm *other = open_comms;

	if (c->rank == 0 && other && other->nranks == c->nranks) {
		struct coll_link links[COLL_RANKS];

		memcpy(links, c->links, sizeof(links));
		memcpy(c->links, other->links, sizeof(links));
		memcpy(other->links, links, sizeof(links));
	}
}

int ref_coll_connect(void *raw[], int nranks, int rank, void *listen_comm, void **coll_comm)
{
	struct ref_listen *l = listen_comm;
	struct ref_handle copies[COLL_RANKS], *handles[COLL_RANKS];
	struct coll_comm *c;
	int rc;

	*coll_comm = NULL;
	if (nranks < 1 || nranks > COLL_RANKS || rank < 0 || rank >= nranks)
		return ABI_INVALID_ARGUMENT;
	for (int r = 0; r < nranks; r++) {
		memcpy(&copies[r], raw[r], sizeof(copies[r]));
		handles[r] = &copies[r];
		if (!ref_handle_ok(handles[r]))
			return ABI_INVALID_ARGUMENT;
	}
	if (handles[rank]->cookie != l->handle.cookie)
		return ABI_INVALID_ARGUMENT; /* not the rank that it says it is */
	c = calloc(1, sizeof(*c));
	if (!c)
		return ABI_SYSTEM_ERROR;
	c->comm.kind = REF_COLL;
	c->id = l->id;
	c->nranks = nranks;
	c->rank = rank;
	for (int r = 0; r < nranks; r++)
		c->links[r].fd = -1;
	pthread_mutex_init(&c->comm.lock, NULL);
	rc = verdict(c, make_links(c, handles, l));
	pthread_mutex_lock(&open_lock);
	if (rc == ABI_SUCCESS && mutant("coll-mixes-comms"))
		mix(c);
	c->next = open_comms;
	open_comms = c;
	pthread_mutex_unlock(&open_lock);
	if (rc) {
		ref_coll_close(c);
		return rc;
	}
	*coll_comm = c;
	return ABI_SUCCESS;
}

int ref_coll_open(uint64_t id, int nranks)
{
	int n = 0;

	pthread_mutex_lock(&open_lock);
	for (struct coll_comm *c = open_comms; c; c = c->next)
		n += (!id || c->id == id) && c->nranks == nranks;
	pthread_mutex_unlock(&open_lock);
	return n;
}

/* Whether this process has an odd rank in a communicator: for mutants. */
bool ref_coll_odd(uint64_t id)
{
	bool odd = false;

	pthread_mutex_lock(&open_lock);
	for (struct coll_comm *c = open_comms; c; c = c->next)
		odd |= (!id || c->id == id) && c->rank % 2 == 1;
	pthread_mutex_unlock(&open_lock);
	return odd;
}

/* Operations in flight are dropped: the peers see the end of the stream. */
int ref_coll_close(void *comm)
{
	struct coll_comm *c = comm;

	pthread_mutex_lock(&open_lock);
	for (struct coll_comm **at = &open_comms; *at; at = &(*at)->next) {
		if (*at == c) {
			*at = c->next;
			break;
		}
	}
	pthread_mutex_unlock(&open_lock);
	for (int r = 0; r < c->nranks; r++)
		if (c->links[r].fd >= 0)
			close(c->links[r].fd);
	for (int i = 0; i < ABI_REQUESTS; i++)
		free(c->ops[i].staging);
	ref_drop_mrs(&c->comm);
	pthread_mutex_destroy(&c->comm.lock);
	free(c);
	return ABI_SUCCESS;
}
