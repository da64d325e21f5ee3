/* Requests as NCCL's profiler is told of them: an event each, with a struct mcast_net_event. */
#include <string.h>

#include "comm.h"
#include "p2p.h"

_Static_assert(sizeof(((struct mcast_net_event *)0)->peer) == sizeof(((struct p2p_comm *)0)->peer), "a peer's address");

static struct mcast_net_event *event_of(struct p2p_request *r) { return &r->comm->events[r - r->comm->requests]; }

void p2p_profile(struct p2p_comm *c, nccl_profiler profiler)
{
	static uint32_t connections;
	const uint32_t number = __atomic_add_fetch(&connections, 1, __ATOMIC_RELAXED);
	int i;

	c->profiler = profiler;
	for (i = 0; i < P2P_IN_FLIGHT; i++) {
		struct mcast_net_event *e = &c->events[i];

		e->connection = number;
		e->sending = c->sending != 0;
		e->over = c->verbs != NULL ? MCAST_NET_RDMA : c->lane[0].ring != NULL ? MCAST_NET_SHM : MCAST_NET_TCP;
		memcpy(e->peer, c->peer, sizeof(e->peer));
	}
}

/* Without a profiler NCCL has a callback all the same, which returns at once: no more is done before it than it takes.
 * */
void p2p_event_start(struct p2p_request *r, int tag, void *parent)
{
	struct p2p_comm *c = r->comm;
	struct mcast_net_event *e = event_of(r);

	if (c->profiler == NULL || parent == NULL)
		return;
	e->sequence = c->sequence;
	e->tag = tag;
	e->lanes = 1;
	e->outcome = MCAST_NET_IN_FLIGHT;
	e->bytes = r->size;
	e->posted = e->begun = e->moved = e->done = 0;
	(void)c->profiler(&r->event, NCCL_NET_EVENT_START, parent, MCAST_NET_EVENT_ID, e);
	if (r->event != NULL)
		e->posted = p2p_now();
}

void p2p_event_stop(struct p2p_request *r, int outcome)
{
	struct mcast_net_event *e = event_of(r);

	if (r->event == NULL)
		return;
	e->lanes = r->header.lanes;
	e->outcome = (uint8_t)outcome;
	e->bytes = r->size;
	e->done = p2p_now();
	(void)r->comm->profiler(&r->event, NCCL_NET_EVENT_UPDATE_AND_STOP, NULL, MCAST_NET_EVENT_ID, e);
	r->event = NULL;
}
