/* Messages that an RDMA device moves: see verbs.h. */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "verbs.h"

enum {
	BATCH = 16,   /* completions of a look */
	ROUNDS = 4,   /* looks of a step */
	QUIET = 256,  /* looks in vain after the peer has closed: what it sent before may not be reported yet */
	NOBODY = 255, /* in place of a request: a write that does not end its share */
};

/* Immediate data: the size of the message, and whether it lies on all lanes. */
#define SPREAD ((uint32_t)1 << 31)

/* What wr_id says of a request of the queue pairs: receives have their lane alone. */
enum { WRITE = 1, OFFER = 2, FLUSH = 3 };

static uint64_t id(int kind, unsigned lane, unsigned request) { return (uint64_t)kind << 16 | request << 8 | lane; }

static uint64_t check(const struct offer *o)
{
	uint64_t h = o->address * 0x9e3779b97f4a7c15;

	h = (h ^ h >> 32 ^ ((uint64_t)o->key << 32 | o->size)) * 0xbf58476d1ce4e5b9;
	h = (h ^ h >> 29 ^ ((uint64_t)o->sequence + 1)) * 0x94d049bb133111eb;
	return h ^ h >> 31;
}

/* Posts a request to the device. If the device refuses it, the comm ends. */
static int post(struct p2p_comm *c, rdma_qp *qp, rdma_send_wr *wr, const char *what)
{
	rdma_send_wr *bad;
	int e = qp->context->ops.post_send(qp, wr, &bad);

	if (e)
		p2p_fail(c, P2P_E_SYSTEM, "%s: the device does not take it: %s", what, strerror(e));
	return !e;
}

/* Takes the offers that have come, each for the next message. */
static int match(struct p2p_comm *c)
{
	struct p2p_verbs *v = c->verbs;
	int some = 0;

	while (v->first != v->last) {
		struct p2p_request *r = v->waiting[v->first % P2P_IN_FLIGHT];
		const uint32_t sequence = le32toh(r->header.sequence);
		struct offer o;
		int i;

		__atomic_signal_fence(__ATOMIC_SEQ_CST); /* read it again each time */
		memcpy(&o, &v->offers[sequence % P2P_IN_FLIGHT], sizeof(o));
		o = (struct offer){le64toh(o.address), le32toh(o.key), le32toh(o.size), le32toh(o.sequence), 0, le64toh(o.check)};
		if (o.sequence != sequence || o.check != check(&o))
			break;
		if (r->size > o.size) {
			p2p_fail(c, P2P_E_MISMATCH, "message %u has %zu bytes, its receive %u", sequence, r->size, o.size);
			break;
		}
		v->first++;
		v->taken[r - c->requests] = o;
		p2p_event_begun(r);
		p2p_push(&c->lane[0], r);
		if (v->lanes > 1 && r->size >= c->cut) {
			r->header.lanes = (uint8_t)v->lanes;
			r->pending = (unsigned)v->lanes;
			for (i = 1; i < v->lanes; i++)
				p2p_push(&c->lane[i], r);
		}
		some = 1;
	}
	return some;
}

/* Has the device write the offered messages of a lane, as far as it has room. */
static int write_lane(struct p2p_comm *c, unsigned lane)
{
	struct p2p_verbs *v = c->verbs;
	struct lane *l = &c->lane[lane];
	int some = 0;

	while (l->first != l->last && v->posted[lane] < POSTED && !c->error) {
		struct p2p_request *r = l->queue[l->first % P2P_IN_FLIGHT];
		const struct offer *o = &v->taken[r - c->requests];
		char *at;
		size_t left = p2p_share(r, lane, &at) - l->moved, n = left < v->piece ? left : v->piece;
		int ends = n == left;
		rdma_sge sge = {(uintptr_t)at + l->moved, (uint32_t)n, r->key};
		rdma_send_wr wr = {
			.wr_id = id(WRITE, lane, ends ? (unsigned)(r - c->requests) : NOBODY),
			.sg_list = &sge,
			.num_sge = n > 0,
			.opcode = ends ? RDMA_WRITE_IMMEDIATE : RDMA_WRITE,
			.send_flags = RDMA_SIGNALED,
			.imm_data = htonl((uint32_t)r->size | (r->header.lanes > 1 ? SPREAD : 0)),
			.wr.rdma = {o->address + (uint64_t)(at - r->data) + l->moved, o->key},
		};

		if (!post(c, v->lane[lane], &wr, "write"))
			break;
		v->posted[lane]++;
		l->moved += n;
		if (ends) {
			l->moved = 0;
			l->first++;
			p2p_event_moved(r);
		}
		some = 1;
	}
	return some;
}

/* Offers the receives that are not offered yet, as far as the device has room. */
static int offer_receives(struct p2p_comm *c)
{
	struct p2p_verbs *v = c->verbs;
	struct lane *l = &c->lane[0];
	int some = 0;

	while (v->offered != c->sequence && v->posted[0] < POSTED && !c->error) {
		const struct p2p_request *r = l->queue[(l->last - (c->sequence - v->offered)) % P2P_IN_FLIGHT];
		const unsigned at = v->offered % P2P_IN_FLIGHT;
		struct offer o = {(uintptr_t)r->data, r->key, (uint32_t)r->capacity, v->offered, 0, 0};
		rdma_sge sge = {(uintptr_t)&v->offers[at], sizeof(o), v->mr->lkey};
		rdma_send_wr wr = {
			.wr_id = id(OFFER, 0, NOBODY),
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = RDMA_WRITE,
			.send_flags = RDMA_SIGNALED,
			.wr.rdma = {v->theirs + at * sizeof(o), v->theirs_key},
		};

		o.check = check(&o);
		v->offers[at] = (struct offer){htole64(o.address), htole32(o.key), htole32(o.size), htole32(o.sequence), 0,
			htole64(o.check)};
		if (!post(c, v->lane[0], &wr, "offer a receive"))
			break;
		v->posted[0]++;
		v->offered++;
		some = 1;
	}
	return some;
}

/* Counts shares that arrived on a lane for the messages that are known to lie there. */
static void settle_lane(struct p2p_comm *c, unsigned lane)
{
	struct lane *l = &c->lane[lane];

	for (; c->verbs->early[lane] > 0 && l->first != l->last; c->verbs->early[lane]--) {
		struct p2p_request *r = l->queue[l->first++ % P2P_IN_FLIGHT];

		r->pending--;
		p2p_event_moved(r);
	}
}

/* A share has arrived, whole. On lane 0 it says how large the message is, and whether there are more. */
static void arrived(struct p2p_comm *c, unsigned lane, uint32_t immediate)
{
	struct p2p_verbs *v = c->verbs;
	struct lane *l = &c->lane[0];
	struct p2p_request *r;
	size_t size = immediate & ~SPREAD;
	unsigned i;
	int e = p2p_verbs_expect(v, lane);

	if (e)
		p2p_fail(c, P2P_E_SYSTEM, "post a receive: the device does not take it: %s", strerror(e));
	v->early[lane]++;
	if (lane > 0) {
		settle_lane(c, lane);
		return;
	}
	if (l->first == l->last || size > l->queue[l->first % P2P_IN_FLIGHT]->capacity ||
		(immediate & SPREAD && v->lanes == 1)) {
		p2p_fail(c, P2P_E_SYSTEM, "the peer announces %zu bytes (%#x) that no receive is for", size, immediate);
		return;
	}
	r = l->queue[l->first % P2P_IN_FLIGHT];
	r->size = size;
	p2p_event_begun(r);
	if (immediate & SPREAD) {
		r->header.lanes = (uint8_t)v->lanes;
		r->pending = (unsigned)v->lanes;
		for (i = 1; i < (unsigned)v->lanes; i++) {
			p2p_push(&c->lane[i], r);
			settle_lane(c, i);
		}
	}
	settle_lane(c, 0);
}

/* The connection is over. The peer's last word counts first: messages may have arrived unacknowledged. */
static void broken(struct p2p_comm *c, const rdma_wc *wc)
{
	const int own = wc->status >= 1 && wc->status <= 4; /* IBV_WC_LOC_*: length, queue pair, protection */

	if (!p2p_alive(c))
		return;
	p2p_fail(c, own ? P2P_E_SYSTEM : P2P_E_REMOTE, "%s: %s (status %d, vendor's %#x)",
		wc->wr_id >> 16 == FLUSH ? "flush" : "RDMA",
		 p2p_verbs_status(wc->status), wc->status, wc->vendor_err);
}

static int completions(struct p2p_comm *c)
{
	struct p2p_verbs *v = c->verbs;
	rdma_wc wc[BATCH];
	int i, n = BATCH, round, some = 0;

	for (round = 0; round < ROUNDS && n == BATCH && !c->error; round++) {
		n = v->cq->context->ops.poll_cq(v->cq, BATCH, wc);
		if (n < 0)
			p2p_fail(c, P2P_E_SYSTEM, "look for completions: the device has failed");
		for (i = 0; i < n && !c->error; i++) {
			const unsigned lane = wc[i].wr_id & 0xff, request = wc[i].wr_id >> 8 & 0xff;

			some = 1;
			if (wc[i].status) {
				broken(c, &wc[i]);
				continue; /* what other queue pairs have moved may be behind it */
			}
			switch (wc[i].wr_id >> 16) {
			case 0:
				arrived(c, lane, ntohl(wc[i].imm_data));
				continue;
			case WRITE:
			case OFFER:
				v->posted[lane]--;
			}
			if (request != NOBODY)
				c->requests[request].pending--;
		}
	}
	return some;
}

int p2p_verbs_step(struct p2p_comm *c)
{
	struct p2p_verbs *v = c->verbs;
	int moved = completions(c), i;

	if (c->error)
		return moved;
	if (!c->sending) {
		moved |= offer_receives(c);
		if (c->gone && !moved && ++v->idle_steps > QUIET)
			p2p_fail(c, P2P_E_REMOTE, "the peer closed the connection");
		return moved;
	}
	moved |= match(c);
	for (i = 0; i < v->lanes; i++)
		moved |= write_lane(c, (unsigned)i);
	return moved;
}

void p2p_verbs_send(struct p2p_comm *c, struct p2p_request *r)
{
	c->verbs->waiting[c->verbs->last++ % P2P_IN_FLIGHT] = r;
	p2p_verbs_step(c);
}

/* A read from where the data went is answered once they are there. */
int p2p_verbs_flush(struct p2p_comm *c, struct p2p_request *r)
{
	struct p2p_verbs *v = c->verbs;
	rdma_sge sge = {(uintptr_t)&v->offers[P2P_IN_FLIGHT], 1, v->mr->lkey};
	rdma_send_wr wr = {
		.wr_id = id(FLUSH, 0, (unsigned)(r - c->requests)),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = RDMA_READ,
		.send_flags = RDMA_SIGNALED,
		.wr.rdma = {(uintptr_t)r->data, r->key},
	};

	return post(c, v->loop, &wr, "flush") ? 0 : EIO;
}
