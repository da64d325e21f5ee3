/* Inside of a comm with an RDMA device that moves its messages. A receive is offered to the sender: its place is
 * written into the sender's memory. The sender writes the data there, and with the last of them, on each lane, the size
 * as immediate data. A lane is an RC queue pair. */
#ifndef MCAST_P2P_VERBS_H
#define MCAST_P2P_VERBS_H

#include "../../internal/transport/ibverbs/abi.h"
#include "comm.h"

#pragma GCC visibility push(hidden)

/* A receive, as the sender sees it; little endian. The device may write its bytes in any order: it is there once the
 * check is right. */
struct offer {
	uint64_t address;
	uint32_t key;
	uint32_t size;
	uint32_t sequence;
	uint32_t unused;
	uint64_t check;
};

_Static_assert(sizeof(struct offer) == 32, "32 bytes on the wire");

enum {
	POSTED = 64, /* writes of a lane that the device holds */
};

struct p2p_verbs {
	rdma_pd *pd;
	rdma_cq *cq;
	rdma_qp *lane[P2P_LANES];
	rdma_qp *loop; /* of a receiver: to itself, for flushes */
	rdma_mr *mr;   /* of the offers */
	int lanes;
	unsigned timeout; /* ms */
	size_t piece;     /* bytes of the largest write */

	/* By sequence. A sender's are written by the peer; a receiver's, as they are written there. A byte for flushes to
	 * read into lies behind. */
	struct offer *offers;
	uint64_t theirs; /* the sender's, for the receiver */
	uint32_t theirs_key;

	unsigned posted[P2P_LANES]; /* writes that are not completed */

	/* Of a sender. */
	struct p2p_request *waiting[P2P_IN_FLIGHT]; /* for their offers */
	unsigned first, last;
	struct offer taken[P2P_IN_FLIGHT]; /* by request */

	/* Of a receiver. */
	uint32_t offered;          /* receives */
	unsigned early[P2P_LANES]; /* shares that arrived before lane 0 announced them */
	unsigned idle_steps;       /* steps in vain since the peer closed its end */
};

/* queues.c */
const char *p2p_verbs_status(int status);
int p2p_verbs_expect(struct p2p_verbs *v, unsigned lane); /* posts a receive; 0 or an errno */

/* verbs.c */
int p2p_verbs_step(struct p2p_comm *c);
void p2p_verbs_send(struct p2p_comm *c, struct p2p_request *r);
int p2p_verbs_flush(struct p2p_comm *c, struct p2p_request *r); /* 0 or an errno */

#pragma GCC visibility pop

#endif
