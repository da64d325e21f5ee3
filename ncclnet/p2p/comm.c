/* Requests: the functions that the net plugin calls. */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verbs.h"

enum {
	MAGIC = 0x5032,
	CUT = 256 << 10,
	EAGER = 64, /* idle steps after news before tests are thinned out */
	THIN = 8,   /* then one test in so many makes a system call */
	CHECK = 256, /* idle steps between two looks at the peer */
	LISTEN = 64, /* sends between two */
	REST = 5000, /* ns after a step in vain, where large messages follow each other */
};

static struct p2p_request *take(struct p2p_comm *c, void *data, size_t size, uint32_t key)
{
	struct p2p_request *r;
	unsigned i;

	if (!c->free)
		return NULL;
	i = (unsigned)__builtin_ctz(c->free);
	c->free &= c->free - 1;
	r = &c->requests[i];
	r->data = data;
	r->size = r->capacity = size;
	r->key = key;
	r->event = NULL;
	r->flush = 0;
	r->pending = 1;
	r->live = 1;
	r->header = (struct header){
		.magic = htole16(MAGIC),
		.lanes = 1,
		.sequence = htole32(c->sequence),
		.size = htole64(size),
	};
	return r;
}

/* Says why a call is not carried out; the comm goes on. */
static int refuse(struct p2p_comm *c, const char *why)
{
	if (c != NULL && !c->error)
		snprintf(c->text, sizeof(c->text), "%s %s: %s", c->sending ? "send to" : "receive from", c->peer, why);
	return P2P_E_ARGUMENT;
}

static int post(struct p2p_comm *c, int sending, void *data, size_t size, uint32_t key, struct p2p_request **req)
{
	if (req == NULL)
		return refuse(c, "there is no place for the request");
	*req = NULL;
	if (c == NULL)
		return P2P_E_ARGUMENT;
	if (c->sending != sending)
		return refuse(c, sending ? "a comm that receives was asked to send" : "a comm that sends was asked to receive");
	if (data == NULL && size > 0)
		return refuse(c, "the data are NULL, but not of 0 bytes");
	if (size > (c->verbs != NULL ? INT32_MAX : SIZE_MAX >> 16))
		return refuse(c, c->verbs != NULL ? "the size has more than 31 bits" : "the size has more than 48 bits");
	if (c->error)
		return c->error;
	*req = take(c, data, size, key);
	c->eager = EAGER;
	return P2P_OK;
}

int p2p_isend(struct p2p_comm *c, const void *data, size_t size, uint32_t key, int tag, void *parent,
	struct p2p_request **req)
{
	int rc = post(c, 1, (void *)data, size, key, req);
	int i, idle;

	if (rc != P2P_OK || *req == NULL)
		return rc;
	p2p_event_start(*req, tag, parent);
	c->sequence++;
	/* A sender would learn in no other way that the peer is gone, if the kernel takes all its messages. */
	if (c->sequence % LISTEN == 0)
		(void)p2p_alive(c);
	if (c->verbs != NULL) {
		if (!c->error)
			p2p_verbs_send(c, *req);
		return P2P_OK;
	}
	idle = c->lane[0].first == c->lane[0].last;
	p2p_push(&c->lane[0], *req);
	c->lane[0].latest = size;
	if (c->lanes > 1 && size >= c->cut) {
		(*req)->header.lanes = (uint8_t)c->lanes;
		(*req)->pending = (unsigned)c->lanes;
		for (i = 1; i < c->lanes; i++)
			p2p_push(&c->lane[i], *req);
	}
	if (idle && !c->error) /* else the stream is full, and a test will find out when it no longer is */
		p2p_step(c);
	return P2P_OK;
}

int p2p_irecv(struct p2p_comm *c, void *data, size_t size, uint32_t key, int tag, void *parent,
	struct p2p_request **req)
{
	int rc = post(c, 0, data, size, key, req);

	if (rc != P2P_OK || *req == NULL)
		return rc;
	p2p_event_start(*req, tag, parent);
	c->sequence++;
	p2p_push(&c->lane[0], *req);
	if (c->verbs != NULL)
		p2p_step(c);
	return P2P_OK;
}

int p2p_iflush(struct p2p_comm *c, void *data, uint32_t key, struct p2p_request **req)
{
	int rc = post(c, 0, data, 1, key, req);

	if (rc != P2P_OK || *req == NULL)
		return rc;
	(*req)->flush = 1;
	if (c->verbs == NULL)
		(*req)->pending = 0;
	else
		p2p_verbs_flush(c, *req);
	return P2P_OK;
}

/* Whether a moment does not matter: a stream of large messages is limited by its bytes. A thread that looks at
 * a socket without a pause keeps the socket's lock from the kernel, which then brings fewer bytes, and answers
 * smaller pieces with more acknowledgements. */
static int may_pause(const struct p2p_comm *c)
{
	const struct lane *l = &c->lane[0];

	return l->ring == NULL && c->verbs == NULL && l->latest >= LARGE && (c->sending || l->last - l->first > FEW);
}

static void progress(struct p2p_comm *c)
{
	if (c->until != 0 && p2p_now() < c->until)
		return;
	c->until = 0;
	if (c->eager == 0 && c->lane[0].ring == NULL && c->verbs == NULL && ++c->skipped % THIN)
		return;
	if (p2p_step(c)) {
		c->idle = 0;
		c->eager = EAGER;
		return;
	}
	if (may_pause(c))
		c->until = p2p_now() + REST;
	if (c->eager > 0)
		c->eager--;
	if (++c->idle % CHECK == 0 && !c->gone && !p2p_alive(c))
		c->gone = 1;
}

int p2p_test(struct p2p_request *r, int *done, size_t *size)
{
	struct p2p_comm *c;

	if (r == NULL)
		return P2P_E_ARGUMENT;
	if (done == NULL)
		return refuse(r->comm, "there is no place for the outcome of a test");
	*done = 0;
	if (!r->live)
		return refuse(r->comm, "the tested request is done already");
	c = r->comm;
	if (r->pending && !c->error)
		progress(c);
	if (r->pending) {
		if (c->error)
			p2p_event_stop(r, MCAST_NET_FAILED);
		return c->error;
	}
	p2p_event_stop(r, MCAST_NET_DONE);
	if (size != NULL)
		*size = r->size;
	*done = 1;
	r->live = 0;
	c->free |= 1u << (r - c->requests);
	return P2P_OK;
}

const char *p2p_error(const struct p2p_comm *c) { return c != NULL ? c->text : "there is no comm"; }

struct p2p_comm *p2p_of(const struct p2p_request *r) { return r->comm; }

void *p2p_device_of(const struct p2p_comm *c) { return c->verbs != NULL ? c->verbs->pd : NULL; }

struct p2p_comm *p2p_open(const struct p2p_setup *s)
{
	struct p2p_comm *c;
	struct ring *ring = NULL;
	size_t ahead = s->memfd < 0 ? STAGING : HEADER; /* of lane 0; the others carry shares of large messages alone */
	int i;

	if (s->lanes < 1 || s->lanes > P2P_LANES || ((s->memfd >= 0 || s->verbs != NULL) && s->lanes > 1)) {
		errno = EINVAL;
		return NULL;
	}
	/* With the staging rooms of a receiver behind it: one allocation. */
	c = calloc(1, sizeof(*c) + (s->sending ? 0 : ahead + HEADER * (size_t)(s->lanes - 1)));
	if (c == NULL)
		return NULL;
	if (s->memfd >= 0 && (ring = p2p_ring_map(s->memfd)) == NULL) {
		free(c);
		return NULL;
	}
	c->sending = s->sending;
	c->lanes = s->lanes;
	c->verbs = s->verbs;
	c->sealed = s->sealed;
	/* TLS takes no MSG_ZEROCOPY: it copies the bytes that it seals. */
	c->zerocopy = s->sending && ring == NULL && s->verbs == NULL && !s->sealed ? s->zerocopy : 0;
	c->timeout = s->timeout;
	c->cut = s->cut ? s->cut : CUT;
	c->free = UINT32_MAX;
	snprintf(c->peer, sizeof(c->peer), "%s", s->peer ? s->peer : "?");
	for (i = 0; i < P2P_IN_FLIGHT; i++)
		c->requests[i].comm = c;
	for (i = 0; i < c->lanes; i++) {
		c->lane[i].comm = c;
		c->lane[i].stream = ring ? &p2p_ring : &p2p_socket;
		c->lane[i].ring = ring;
		c->lane[i].fd = s->fds[i];
		c->lane[i].ahead = i == 0 ? ahead : HEADER;
		c->lane[i].staged = (char *)(c + 1) + (i == 0 ? 0 : ahead + HEADER * (size_t)(i - 1));
	}
	if (p2p_socket_setup(c) < 0) {
		if (ring != NULL)
			p2p_ring_unmap(ring);
		free(c);
		return NULL;
	}
	p2p_watch_add(c);
	return c;
}

void p2p_close(struct p2p_comm *c)
{
	int i;

	if (c == NULL)
		return;
	for (i = 0; i < P2P_IN_FLIGHT; i++)
		if (c->requests[i].live)
			p2p_event_stop(&c->requests[i], c->error ? MCAST_NET_FAILED : MCAST_NET_ABANDONED);
	if (c->lane[0].ring != NULL)
		p2p_ring_unmap(c->lane[0].ring);
	if (c->verbs != NULL) {
		if (!c->sending && !c->error)
			p2p_farewell(c);
		p2p_verbs_close(c->verbs);
	}
	if (p2p_watch_close(c))
		free(c);
}

void p2p_shape(const struct p2p_comm *c, int *lanes, int *ring, int *zerocopy)
{
	*lanes = c->verbs != NULL ? c->verbs->lanes : c->lanes;
	*ring = c->lane[0].ring != NULL;
	*zerocopy = c->zerocopy != 0;
}
