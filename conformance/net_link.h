/* What the net cases share: connections made as NCCL makes them, and requests
 * polled as NCCL polls them. */
#ifndef NET_LINK_H
#define NET_LINK_H

#include "harness.h"

/* One direction: rank from sends, rank to receives; the others have neither. */
struct link {
	void *listen, *send, *recv;
	unsigned char handle[ABI_HANDLE_BYTES] __attribute__((aligned(64)));
};

/* init, devices and a look at the device; the context is in r->net.ctx. Returns
 * the properties. */
struct abi_props net_begin(struct rank *r);

/* listen, with a guard behind the 128 bytes of the handle. */
void link_listen(struct rank *r, struct link *l);
/* A turn of connect or accept; true when the comm is there. */
bool link_connect(struct rank *r, struct link *l);
bool link_accept(struct rank *r, struct link *l);
/* count links from rank from to rank to. They are polled in turn, and their
 * listens are closed as soon as all are accepted. Both ranks call this. */
void links_open(struct rank *r, struct link *links, int count, int from, int to);
void links_close(struct rank *r, struct link *links, int count);

/* A message: what isend or irecv is asked, and how far it is. */
struct message {
	void *comm;
	bool receive;
	void *data;
	size_t size;			/* of the send, or the room of the receive */
	int tag;
	void *mhandle;
	void *phandle;			/* the profiler's, or NULL */
	bool quiet;			/* test with sizes = NULL */
	void *hint;			/* in *request on entry; NULL or ABI_OPTIONAL_COMPLETION */
	int got;			/* the size that test gave for a receive */
	bool posted, done;
	void *request;
};

enum { UNSAID = -77 };			/* in got, if test says no size */

/* Posts as many as may be in flight on each comm, in order, and tests the
 * others once. True when something moved. */
bool messages_turn(struct rank *r, struct message *m, int count, int in_flight);
/* Until all are done. */
void messages_wait(struct rank *r, struct message *m, int count, int in_flight);
/* One try to post; true when the plugin took it. */
bool message_post(struct rank *r, struct message *m);
/* One test of a posted message; true when it became done. */
bool message_test(struct rank *r, struct message *m);

/* A registration of host memory, checked to be a handle. */
void *memory(struct rank *r, void *comm, void *data, size_t size);

#endif
