/* CollNet data: a socket between each two ranks. Every operation sends each peer
 * one piece (perhaps of no bytes) and expects one from it, in the order of the
 * calls, which is the same on all ranks; nothing is matched by tag. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "reference_coll.h"

/* The bytes of rank's slot that lie in the window [offset, offset + size). */
static size_t overlap(int rank, size_t bytes_per_rank, size_t offset, size_t size, size_t *start)
{
	size_t first = (size_t)rank * bytes_per_rank, end = first + bytes_per_rank;

	if (first < offset)
		first = offset;
	if (end > offset + size)
		end = offset + size;
	*start = first;
	return first < end ? end - first : 0;
}

static int push_piece(int fd, const struct coll_op *op, struct coll_piece *p)
{
	struct coll_header header = {op->sequence, op->kind, p->out_size};
	int rc = ref_push(fd, &header, sizeof(header), &p->out_header);

	if (rc == ABI_SUCCESS && p->out_header == sizeof(header))
		rc = ref_push(fd, p->out, p->out_size, &p->out_moved);
	return rc;
}

static int pull_piece(int fd, const struct coll_op *op, struct coll_piece *p)
{
	int rc = ref_pull(fd, &p->header, sizeof(p->header), &p->in_header);

	if (rc || p->in_header < sizeof(p->header))
		return rc;
	if (p->header.sequence != op->sequence || p->header.kind != op->kind || p->header.size != p->in_size)
		return ABI_INVALID_USAGE; /* the ranks' calls differ */
	return ref_pull(fd, p->in, p->in_size, &p->in_moved);
}

/* Everything is here and everything is sent: the buffers may be written. */
static void finish(struct coll_comm *c, struct coll_op *op)
{
	if (op->kind == ABI_ALLGATHER) {
		if (op->own_size && op->own != op->result && !mutant("coll-own-part"))
			memmove(op->result, op->own, op->own_size);
		if (op->own_size && op->own == op->result && mutant("coll-in-place"))
			op->result[0] ^= 1;
		if (op->own_size == 0 && mutant("coll-touches-send"))
			op->own[0] ^= 1;
		if (mutant("coll-writes-beyond"))
			op->window[op->size] ^= 1;
	} else if (op->own_size) {
		const void *from[COLL_RANKS];

		for (int r = 0; r < c->nranks; r++)
			from[r] = r == c->rank ? op->own : op->pieces[r].in;
		ref_reduce(op->result, from, c->nranks, op->own_size / ref_type_size(op->type), op->type, op->op);
	} else if (op->kind == ABI_REDUCE_SCATTER && mutant("coll-touches-recv")) {
		op->result[0] ^= 1;
	}
	free(op->staging);
	op->staging = NULL;
	op->request.done = true;
	if (op->request.reported)
		op->request.used = false;
}

/* Moves what can move. Call with the lock held. */
static void progress(struct coll_comm *c)
{
	for (int r = 0; r < c->nranks && !c->error; r++) {
		struct coll_link *l = &c->links[r];

		while (r != c->rank && !c->error && l->sent != c->tail) {
			struct coll_op *op = &c->ops[l->sent % ABI_REQUESTS];
			struct coll_piece *p = &op->pieces[r];

			c->error = push_piece(l->fd, op, p);
			if (p->out_header < sizeof(p->header) || p->out_moved < p->out_size)
				break;
			l->sent++;
		}
		while (r != c->rank && !c->error && l->received != c->tail) {
			struct coll_op *op = &c->ops[l->received % ABI_REQUESTS];
			struct coll_piece *p = &op->pieces[r];

			c->error = pull_piece(l->fd, op, p);
			if (p->in_header < sizeof(p->header) || p->in_moved < p->in_size)
				break;
			l->received++;
		}
	}
	while (c->head != c->tail) {
		for (int r = 0; r < c->nranks; r++)
			if (r != c->rank && (c->links[r].sent == c->head || c->links[r].received == c->head))
				return;
		finish(c, &c->ops[c->head++ % ABI_REQUESTS]);
	}
}

/* The next operation, empty; NULL with rc ABI_SUCCESS if 32 are in flight. The
 * lock is held when it returns one. */
static struct coll_op *begin(struct coll_comm *c, int kind, int *rc, void **request)
{
	struct coll_op *op = &c->ops[c->tail % ABI_REQUESTS];

	pthread_mutex_lock(&c->comm.lock);
	*request = NULL;
	*rc = c->error;
	if (*rc == ABI_SUCCESS && !op->request.used) {
		memset(op, 0, sizeof(*op));
		op->request.comm = &c->comm;
		op->sequence = c->tail;
		op->kind = kind;
		return op;
	}
	if (*rc == ABI_SUCCESS && mutant("coll-33"))
		*request = &op->request;
	pthread_mutex_unlock(&c->comm.lock);
	return NULL;
}

static int post(struct coll_comm *c, struct coll_op *op, void **request)
{
	op->request.used = true;
	c->tail++;
	*request = &op->request;
	progress(c);
	pthread_mutex_unlock(&c->comm.lock);
	return ABI_SUCCESS;
}

static int give_up(struct coll_comm *c, int rc)
{
	pthread_mutex_unlock(&c->comm.lock);
	return rc;
}

static bool window_ok(const struct coll_comm *c, int parts, size_t part_size, size_t bytes_per_rank, size_t offset,
	size_t size)
{
	return parts == 1 && part_size == size && offset + size <= (size_t)c->nranks * bytes_per_rank;
}

int ref_coll_allgather(void *comm, void *send, int parts, struct abi_part *part, size_t bytes_per_rank,
	size_t offset, size_t size, void *send_mr, void **request)
{
	struct coll_comm *c = comm;
	char *window = part->address;
	size_t start, own = overlap(c->rank, bytes_per_rank, offset, size, &start);
	struct coll_op *op;
	int rc, last = -1;

	if (!window_ok(c, parts, part->size, bytes_per_rank, offset, size) || !ref_covers(part->mhandle, window, size) ||
	    (own && !ref_covers(send_mr, send, own)))
		return ABI_INVALID_ARGUMENT;
	op = begin(c, ABI_ALLGATHER, &rc, request);
	if (!op)
		return rc;
	if (mutant("coll-offset"))
		offset = 0;
	for (int r = 0; r < c->nranks; r++) {
		size_t bytes = overlap(r, bytes_per_rank, offset, size, &start);

		if (bytes && mutant("coll-straddling")) {
			if (last >= 0)
				bytes = 0; /* only the first rank's bytes */
			else
				last = r;
		}
		op->pieces[r].in = bytes ? window + (start - offset) : NULL;
		op->pieces[r].in_size = bytes;
	}
	op->window = window;
	op->size = size;
	op->own = send;
	op->own_size = op->pieces[c->rank].in_size;
	op->result = op->pieces[c->rank].in;
	for (int r = 0; r < c->nranks; r++) {
		op->pieces[r].out = send;
		op->pieces[r].out_size = op->own_size;
	}
	return post(c, op, request);
}

int ref_coll_reducescatter(void *comm, int parts, struct abi_part *part, void *recv, size_t bytes_per_rank,
	size_t offset, size_t size, int type, int redop, void *recv_mr, void **request)
{
	struct coll_comm *c = comm;
	char *window = part->address;
	size_t start, own = overlap(c->rank, bytes_per_rank, offset, size, &start);
	struct coll_op *op;
	int rc;

	if (!window_ok(c, parts, part->size, bytes_per_rank, offset, size) || !ref_covers(part->mhandle, window, size) ||
	    (own && !ref_covers(recv_mr, recv, own)) || !ref_reduce_support(type, redop))
		return ABI_INVALID_ARGUMENT;
	if (own % ref_type_size(type)) {
		if (mutant("coll-refused-ends"))
			c->error = ABI_INVALID_ARGUMENT;
		return ABI_INVALID_ARGUMENT;
	}
	op = begin(c, ABI_REDUCE_SCATTER, &rc, request);
	if (!op)
		return rc;
	op->staging = own ? malloc(own * (size_t)c->nranks) : NULL;
	if (own && !op->staging)
		return give_up(c, ABI_SYSTEM_ERROR);
	for (int r = 0; r < c->nranks; r++) {
		size_t bytes = overlap(r, bytes_per_rank, offset, size, &start);

		op->pieces[r].out = bytes ? window + (start - offset) : NULL;
		op->pieces[r].out_size = bytes;
		op->pieces[r].in = own ? op->staging + (size_t)r * own : NULL;
		op->pieces[r].in_size = own;
	}
	op->own = (char *)op->pieces[c->rank].out;
	op->own_size = own;
	op->result = recv;
	op->size = size;
	op->type = type;
	op->op = redop;
	return post(c, op, request);
}

/* Every rank gets every rank's elements and sums all of them in rank order. */
int ref_coll_allreduce(void *comm, void *send, void *recv, size_t count, int type, int redop, void *send_mr,
	void *recv_mr, void **request)
{
	struct coll_comm *c = comm;
	size_t bytes = count * ref_type_size(type);
	struct coll_op *op;
	int rc;

	if (!ref_reduce_support(type, redop) || !ref_covers(send_mr, send, bytes) || !ref_covers(recv_mr, recv, bytes))
		return ABI_INVALID_ARGUMENT;
	op = begin(c, ABI_ALLREDUCE, &rc, request);
	if (!op)
		return rc;
	op->staging = bytes ? malloc(bytes * (size_t)c->nranks) : NULL;
	if (bytes && !op->staging)
		return give_up(c, ABI_SYSTEM_ERROR);
	for (int r = 0; r < c->nranks; r++) {
		op->pieces[r].out = send;
		op->pieces[r].out_size = op->pieces[r].in_size = bytes;
		op->pieces[r].in = bytes ? op->staging + (size_t)r * bytes : NULL;
	}
	op->own = send;
	op->own_size = op->size = bytes;
	op->result = recv;
	op->type = type;
	op->op = redop;
	return post(c, op, request);
}

/* Host memory needs no flush: a request that is done when it is asked. */
int ref_coll_iflush(void *comm, void *data, int size, void *mhandle, void **request)
{
	struct coll_comm *c = comm;

	if (!ref_covers(mhandle, data, (size_t)size))
		return ABI_INVALID_ARGUMENT;
	*request = NULL;
	pthread_mutex_lock(&c->comm.lock);
	for (int i = 0; i < ABI_REQUESTS && !*request; i++) {
		struct coll_op *f = &c->flushes[i];

		if (!f->request.used) {
			f->request.comm = &c->comm;
			f->request.used = true;
			f->request.done = !mutant("coll-flush-lost");
			*request = &f->request;
		}
	}
	pthread_mutex_unlock(&c->comm.lock);
	return ABI_SUCCESS;
}

/* A request that is done is free again; size may be NULL. */
int ref_coll_test(void *request, int *done, int *size)
{
	struct coll_op *op = request;
	struct coll_comm *c = (struct coll_comm *)op->request.comm;
	int rc = ABI_SUCCESS;

	pthread_mutex_lock(&c->comm.lock);
	if (!op->request.done)
		progress(c);
	*done = op->request.done || (mutant("coll-early-done") && !c->error);
	if (*done && op == &c->ops[2] && mutant("coll-dropped"))
		*done = 0;
	if (*done) {
		if (size)
			*size = (int)op->size;
		op->request.reported = true;
		if (op->request.done)
			op->request.used = false;
	} else if (c->error) {
		rc = c->error;
	}
	pthread_mutex_unlock(&c->comm.lock);
	return rc;
}
