/* The reference plugin: a small and slow NCCL network plugin over TCP loopback,
 * the known-good peer of the harness and an example for authors. One file a
 * noun: reference_net.c (connections and messages), reference_coll.c (CollNet),
 * reference_reduce.c (sums), reference_tuner.c, reference_mutant.c (rules that
 * it breaks on request) and reference.c (init and contexts). Its tables are in
 * abi_vN.c, its calls here, in the shape that the newest tables have.
 *
 * It has no threads: bytes move only inside a call, as NCCL's progress thread
 * keeps polling. */
#ifndef REFERENCE_H
#define REFERENCE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi.h"

#define REF_NAME "reference"
#define REF_MAX_BYTES ((size_t)1 << 30)

/* What a handle holds; 128 bytes are there (NCCL_NET_HANDLE_MAXSIZE). The
 * connecting side keeps its half-made socket in its own copy, as NCCL hands in
 * the same memory at each try. */
struct ref_handle {
	uint64_t magic;
	uint64_t cookie; /* of the listening side, repeated in the greeting */
	uint16_t port;
	uint16_t unused;
	int32_t fd; /* plus one; 0: nothing begun */
};

#define REF_MAGIC 0x7265666572656e63ull

struct ref_listen {
	int fd;
	int pending; /* accepted, its greeting not yet read; -1: none */
	uint64_t id; /* of the communicator, 0 before v11 */
	struct ref_handle handle;
};

/* A registration: which bytes a call may touch. */
struct ref_mr {
	struct ref_mr *next;
	const char *data;
	size_t size;
};

/* What send, receive and collective comms have in common. regMr and deregMr
 * run on another thread than the data calls: the lock covers the whole struct. */
struct ref_comm {
	enum { REF_SEND = 1, REF_RECV, REF_COLL } kind;
	int registering; /* only the mutant regmr-race reads it */
	pthread_mutex_t lock;
	struct ref_mr *mrs;
};

/* The first word of a request says which kind of comm has to test it. */
struct ref_request {
	struct ref_comm *comm;
	bool used, done, reported;
};

/* A communicator's context, v11 and up; a tuner has one in every version. */
struct ref_context {
	uint64_t id;
	size_t nnodes;
	bool crowded; /* several GPUs a node */
};

extern char ref_device[], ref_other_device[]; /* names; the second one is wrong */

int ref_init(void **ctx, uint64_t id, struct abi_config *config, abi_log *log, abi_profile *profile);
int ref_coll_init(void **ctx, uint64_t id, abi_log *log);
int ref_finalize(void *ctx);
int ref_devices(int *ndev);
int ref_set_attr(void *ctx, struct abi_attr *attr);
int ref_listen(void *ctx, int dev, void *handle, void **listen_comm);
/* Without contexts: up to v10, connect up to v9. */
int ref_init_v8(abi_log *log);
int ref_coll_init_v8(abi_log *log);
int ref_listen_v8(int dev, void *handle, void **listen_comm);
int ref_net_connect_v8(int dev, void *handle, void **send_comm, struct abi_device **device);

int ref_close_listen(void *listen_comm);
int ref_listen_socket(struct ref_handle *handle, int *fd);
int ref_dial(const struct ref_handle *handle, int *fd);
int ref_take(int listen_fd); /* -1: nobody there */
bool ref_handle_ok(const struct ref_handle *handle);
int ref_push(int fd, const void *data, size_t size, size_t *moved);
int ref_pull(int fd, void *data, size_t size, size_t *moved);

int ref_reg(void *comm, void *data, size_t size, int type, void **mhandle);
int ref_dereg(void *comm, void *mhandle);
bool ref_covers(const void *mhandle, const void *data, size_t size);
void ref_drop_mrs(struct ref_comm *comm);

void ref_profile(abi_profile *profile); /* whom to tell of requests: the last init's */

int ref_net_connect(void *ctx, int dev, void *handle, void **send_comm, struct abi_device **device);
int ref_net_accept(void *listen_comm, void **recv_comm, struct abi_device **device);
int ref_net_isend(void *comm, void *data, size_t size, int tag, void *mhandle, void *phandle, void **request);
int ref_net_irecv(void *comm, int n, void **data, size_t *sizes, int *tags, void **mhandles, void **phandles,
	void **request);
int ref_net_iflush(void *comm, int n, void **data, int *sizes, void **mhandles, void **request);
int ref_net_test(void *request, int *done, int *sizes);
int ref_net_close(void *comm);

int ref_coll_connect(void *handles[], int nranks, int rank, void *listen_comm, void **coll_comm);
int ref_coll_reduce_support(int type, int op, int *supported);
int ref_coll_allgather(void *comm, void *send, int parts, struct abi_part *part, size_t bytes_per_rank,
	size_t offset, size_t size, void *send_mr, void **request);
int ref_coll_reducescatter(void *comm, int parts, struct abi_part *part, void *recv, size_t bytes_per_rank,
	size_t offset, size_t size, int type, int op, void *recv_mr, void **request);
int ref_coll_allreduce(void *comm, void *send, void *recv, size_t count, int type, int op, void *send_mr,
	void *recv_mr, void **request);
int ref_coll_iflush(void *comm, void *data, int size, void *mhandle, void **request);
int ref_coll_test(void *request, int *done, int *size);
int ref_coll_close(void *comm);
/* How many comms of nranks ranks are open; id 0: of any communicator. */
int ref_coll_open(uint64_t id, int nranks);
bool ref_coll_odd(uint64_t id);

size_t ref_type_size(int type); /* 0: not one that is summed here */
bool ref_reduce_support(int type, int op);
/* to = to op from, count elements; ranks' contributions of 16-bit floats are
 * added in f32 and rounded once: see ref_reduce. */
void ref_reduce(void *to, const void *const *from, int nfrom, size_t count, int type, int op);

int ref_tuner_init(void **ctx, uint64_t id, size_t nranks, size_t nnodes, abi_log *log,
	struct abi_nvl_domains *domains, struct abi_constants *constants);
int ref_tuner_init_v2(size_t nranks, size_t nnodes, abi_log *log, void **ctx); /* up to v4 */
int ref_tuner_info(void *ctx, int coll, size_t bytes, int pipe_ops, float **costs, int algos, int protos,
	int registered, int *channels);
int ref_tuner_chunk(void *ctx, int coll, size_t bytes, int algo, int proto, int channels, size_t *chunk);
int ref_tuner_choose(void *ctx, int coll, int coll_support, int *algo, int *proto);

/* Whether REFERENCE_MUTANT names this rule violation (the list is MUTANTS). */
bool mutant(const char *name);

#endif
