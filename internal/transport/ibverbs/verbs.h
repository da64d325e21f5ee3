// The verbs that this module uses, over libibverbs loaded at run time. Functions return 0 or an errno, unless said.
#ifndef MCAST_IBVERBS_VERBS_H
#define MCAST_IBVERBS_VERBS_H

#include "abi.h"

// rdma_load loads the library. It returns NULL, or dlerror's words for the missing part. Nothing else runs before it
// has.
const char *rdma_load(const char *library);

// rdma_load_cm loads librdmacm, likewise. Nothing of a membership runs before it has.
const char *rdma_load_cm(const char *library);

// rdma_find looks for an open device's active RoCE v2 GID of an IPv4 address on an interface. It returns 0, ENODEV
// where the device has no port on it, ENETDOWN where that port is down, EADDRNOTAVAIL where it has no such GID.
typedef struct {
	int port;
	int gid_index;
	int mtu; // bytes of the largest datagram
	uint8_t gid[16];
	uint16_t lid;        // InfiniBand alone; 0: the link is Ethernet
	uint16_t pkey_index; // likewise
} rdma_place;
int rdma_find(rdma_context *c, uint32_t ifindex, const uint8_t address[4], rdma_place *at);

// rdma_find_port is rdma_find of an InfiniBand port that a membership has found.
int rdma_find_port(rdma_context *c, int port, int pkey_index, rdma_place *at);

// rdma_infiniband returns whether a port of the device has an InfiniBand link.
int rdma_infiniband(rdma_context *c);

// A membership is a multicast group of IPv4 that librdmacm joins by a local address, which says what device and port
// that is. It has a descriptor, and a device of the library's own.
typedef struct {
	rdma_cm_channel *channel;
	rdma_cm_id *id;
	uint8_t group[4];
	int joined;
	int port;
	int pkey_index;
	int status;        // of a join that was refused
	uint32_t qkey;     // of the group, once joined
	rdma_ah_attr path; // likewise: where datagrams to the group go
} rdma_membership;

// rdma_member_open finds the device and port of an address; rdma_member_join joins within so many ms: ETIMEDOUT, or
// ECONNREFUSED and a status. *what names what failed.
int rdma_member_open(rdma_membership *m, const uint8_t address[4], const char **what);
const char *rdma_member_device(rdma_membership *m);
int rdma_member_join(rdma_membership *m, const uint8_t group[4], int within, const char **what);
void rdma_member_close(rdma_membership *m);

rdma_device **rdma_list(int *n);
void rdma_unlist(rdma_device **list);
const char *rdma_name(rdma_device *d);
rdma_context *rdma_open(rdma_device *d); // NULL: errno
int rdma_close(rdma_context *c);

rdma_pd *rdma_alloc(rdma_context *c); // NULL: errno
int rdma_dealloc(rdma_pd *pd);

// Registrations are NULL on an error, which is in errno.
rdma_mr *rdma_register(rdma_pd *pd, uintptr_t p, size_t n, int access);
int rdma_deregister(rdma_mr *mr);

// rdma_survives_fork returns 1 if pages that are registered stay the process's own when it forks, 0 if not, and -1 if
// the library is older than rdma-core 37, which cannot tell.
int rdma_survives_fork(void);

// A payload is what n datagrams end with that begin in a ring: each has its share of so many bytes, the last the rest.
typedef struct {
	uint64_t at;
	uint64_t bytes; // of all; 0: there is none
	uint32_t each;
	uint32_t lkey;
} rdma_payload;

// A queue is a UD queue pair with its completion queues and their channel.
typedef struct {
	rdma_pd *pd;
	rdma_channel *channel;
	rdma_cq *sends, *receives;
	rdma_qp *qp;
	rdma_ah *ah; // of the group
	uint8_t group[16];
	uint16_t lid; // of the group: InfiniBand alone
	int attached;
	uint32_t qkey;
	uint32_t inlined;     // datagrams of so many bytes at most go to the device with their descriptor
	rdma_payload payload; // of the next datagrams
	int posted;    // how many of the datagrams posted last the device took
	uint64_t sent; // datagrams that have been sent for good
	int failed;    // status of one that was not
} rdma_queue;

typedef struct {
	uint32_t slot;
	uint32_t bytes; // after the GRH
	uint32_t from;  // QPN of the sender
	int status;
} rdma_arrival;

// A target is the group of a queue: how it is reached, and with which key.
typedef struct {
	rdma_ah_attr path;
	uint32_t qkey;
} rdma_target;

// rdma_target_of is the target of a group on Ethernet that only the device needs to know; rdma_target_joined is the
// target of a membership.
rdma_target rdma_target_of(const rdma_place *at, const uint8_t group[16], uint8_t tclass, uint8_t hops, uint32_t qkey);
rdma_target rdma_target_joined(const rdma_place *at, const rdma_membership *m, uint8_t tclass, uint8_t hops);

// rdma_queue_open makes a queue ready to send to and receive from a group; *what names the verb that failed.
int rdma_queue_open(rdma_queue *q, rdma_pd *pd, const rdma_place *at, rdma_target to, int send, int receive,
	const char **what);
void rdma_queue_close(rdma_queue *q);

// rdma_post_receive posts slots of a registered ring, with one doorbell for up to 64; q->posted of them are.
int rdma_post_receive(rdma_queue *q, rdma_mr *ring, size_t slot, const uint32_t *slots, int n);

// rdma_post_send sends n datagrams from slots of a registered ring, first and on, modulo its count, with one doorbell
// for up to 64, and each with its share of q->payload behind that. The last of each doorbell reports completion, with
// last + 1 as it is counted from first.
int rdma_post_send(rdma_queue *q, rdma_mr *ring, size_t slot, uint32_t count, uint64_t first, const uint32_t *bytes,
	int n);

// rdma_arrivals returns how many datagrams came, up to most, or -1.
int rdma_arrivals(rdma_queue *q, rdma_arrival *a, int most);

// rdma_sent brings q->sent up to date. It returns 0, or -1, or the status of a datagram that failed.
int rdma_sent(rdma_queue *q);

// rdma_arm has the channel's descriptor become readable once something arrives, or with sends, something is sent, from
// now on. It takes the events that are pending.
int rdma_arm(rdma_queue *q, int sends);

const char *rdma_status(int status);

// Completions are a completion queue with its channel, which connections share.
typedef struct {
	rdma_channel *channel;
	rdma_cq *cq;
} rdma_completions;

typedef struct {
	uint64_t id;
	uint32_t bytes;     // of a receive
	uint32_t immediate; // likewise
	uint16_t status;
	uint16_t received; // it is a receive; unknown where status is not 0
} rdma_completion;

int rdma_completions_open(rdma_completions *c, rdma_context *context, int depth, const char **what);
void rdma_completions_close(rdma_completions *c);

// rdma_completions_poll returns how many things completed, up to most, or -1.
int rdma_completions_poll(rdma_completions *c, rdma_completion *done, int most);

// rdma_completions_arm has the channel's descriptor become readable once something completes from now on. It takes the
// events that are pending.
int rdma_completions_arm(rdma_completions *c);

// rdma_connection_open makes an RC queue pair that takes receives, and may be written to and read from once connected.
rdma_qp *rdma_connection_open(rdma_pd *pd, const rdma_place *at, rdma_completions *sends, rdma_completions *receives,
	int send, int receive,
                              const char **what); // NULL: errno

// rdma_join_peer connects it to another one.
typedef struct {
	uint8_t gid[16];
	uint32_t qpn;
	uint32_t psn;
	uint32_t mtu; // bytes
	uint32_t lid; // InfiniBand alone, else 0
} rdma_address;
int rdma_join_peer(rdma_qp *qp, const rdma_place *at, const rdma_address *own, const rdma_address *peer, int timeout,
	uint8_t tclass);

// rdma_fail has all that was posted complete with an error.
int rdma_fail(rdma_qp *qp);
int rdma_connection_close(rdma_qp *qp);

typedef struct {
	uint64_t id;
	uint64_t local;  // address
	uint64_t remote; // of a write or read
	uint32_t local_key;
	uint32_t remote_key;
	uint32_t bytes;
	uint32_t immediate;
	uint32_t opcode;
} rdma_transfer;

// They post with one doorbell for up to 64. Of n transfers *posted are; n buffers are for immediates.
int rdma_post_transfers(rdma_qp *qp, const rdma_transfer *t, int n, int *posted);
int rdma_post_buffers(rdma_qp *qp, uint64_t id, int n);

#endif
