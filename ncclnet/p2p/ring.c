/* A lane between processes of one host: a ring of bytes in memory that both map.
 * One side writes, the other reads; each owns one of the two counters. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "comm.h"

enum {
	PREFACE = 4096,   /* of the memfd: the counters, a cache line pair each */
	PIECE = 32 << 10, /* copied between two looks of the other side */
	LEAST = 256,
};

struct counters {
	_Alignas(128) _Atomic uint64_t written;
	_Alignas(128) _Atomic uint64_t taken;
};

struct ring {
	struct counters *shared;
	char *bytes;
	size_t capacity;
	uint64_t mine, theirs; /* our counter; the other side's as last seen */
};

size_t p2p_ring_size(size_t capacity) { return PREFACE + capacity; }

/* Maps a ring after checking that nobody can shrink it under us, and that it is
 * no larger than a ring may be, since the whole ring gets memory. */
struct ring *p2p_ring_map(int memfd)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW;
	struct stat st;
	struct ring *g;
	size_t capacity;
	void *at;
	int have = fcntl(memfd, F_GET_SEALS);

	if (have < 0 || fstat(memfd, &st) < 0)
		return NULL;
	capacity = (size_t)st.st_size - PREFACE;
	if ((have & seals) != seals || st.st_size < PREFACE + LEAST || capacity > P2P_RING || (capacity & (capacity - 1))) {
		errno = EINVAL;
		return NULL;
	}
	at = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, memfd, 0);
	if (at == MAP_FAILED)
		return NULL;
	g = calloc(1, sizeof(*g));
	if (g == NULL) {
		(void)munmap(at, (size_t)st.st_size);
		return NULL;
	}
	g->shared = at;
	g->bytes = (char *)at + PREFACE;
	g->capacity = capacity;
	return g;
}

void p2p_ring_unmap(struct ring *g)
{
	(void)munmap(g->shared, PREFACE + g->capacity);
	free(g);
}

/* The bytes that lie in the ring, from the other side's point of view or ours;
 * -1 if the other side wrote nonsense into its counter. */
static ssize_t filled(const struct ring *g, uint64_t written, uint64_t taken)
{
	if (written - taken > g->capacity) {
		errno = EPROTO;
		return -1;
	}
	return (ssize_t)(written - taken);
}

static ssize_t ring_send(struct lane *l, struct iovec *iov, int k, struct p2p_request *pin)
{
	struct ring *g = l->ring;
	size_t total = 0, n, at, end;
	ssize_t used;
	int i;

	(void)pin;
	for (i = 0; i < k; i++) {
		char *from = iov[i].iov_base;
		size_t left = iov[i].iov_len;

		while (left > 0) {
			used = filled(g, g->mine, g->theirs);
			if (used == (ssize_t)g->capacity) {
				g->theirs = atomic_load_explicit(&g->shared->taken, memory_order_acquire);
				used = filled(g, g->mine, g->theirs);
			}
			if (used < 0)
				return -1;
			if (used == (ssize_t)g->capacity)
				goto out;
			n = left < PIECE ? left : PIECE;
			if (n > g->capacity - (size_t)used)
				n = g->capacity - (size_t)used;
			at = g->mine & (g->capacity - 1);
			end = g->capacity - at;
			memcpy(g->bytes + at, from, n < end ? n : end);
			if (n > end)
				memcpy(g->bytes, from + end, n - end);
			g->mine += n;
			from += n;
			left -= n;
			total += n;
			if (n == PIECE)
				atomic_store_explicit(&g->shared->written, g->mine, memory_order_release);
		}
	}
out:
	if (total > 0)
		atomic_store_explicit(&g->shared->written, g->mine, memory_order_release);
	return (ssize_t)total;
}

static ssize_t ring_recv(struct lane *l, struct iovec *iov, int k)
{
	struct ring *g = l->ring;
	size_t total = 0, n, at, end;
	ssize_t used;
	int i;

	for (i = 0; i < k; i++) {
		char *to = iov[i].iov_base;
		size_t left = iov[i].iov_len;

		while (left > 0) {
			if (g->theirs == g->mine)
				g->theirs = atomic_load_explicit(&g->shared->written, memory_order_acquire);
			used = filled(g, g->theirs, g->mine);
			if (used < 0)
				return -1;
			if (used == 0)
				goto out;
			n = left < PIECE ? left : PIECE;
			if (n > (size_t)used)
				n = (size_t)used;
			at = g->mine & (g->capacity - 1);
			end = g->capacity - at;
			memcpy(to, g->bytes + at, n < end ? n : end);
			if (n > end)
				memcpy(to + end, g->bytes, n - end);
			g->mine += n;
			to += n;
			left -= n;
			total += n;
			atomic_store_explicit(&g->shared->taken, g->mine, memory_order_release);
		}
	}
out:
	if (total == 0 && l->comm->gone) {
		/* The peer wrote nothing after it was seen to be gone. */
		if (atomic_load_explicit(&g->shared->written, memory_order_acquire) != g->mine)
			return 0;
		errno = ESHUTDOWN;
		return -1;
	}
	return (ssize_t)total;
}

const struct stream p2p_ring = {.send = ring_send, .recv = ring_recv};
