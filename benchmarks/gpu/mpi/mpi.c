/* The part of MPI that nccl-tests calls, for processes of one host that share a file. The kit for GPU machines has no
 * room for an MPI library, and such machines may have none.
 *
 * RANK and WORLD_SIZE say which rank this process is, MPI_FILE names the file; it is new or empty when a job begins.
 * Every collective is one exchange: each rank writes its slot, all wait, each reads the slots that it wants. */
#include "mpi.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SLOT (1 << 20) /* bytes a rank, the most that one call may hand over */
#define RANKS 64

static struct shared {
	atomic_long arrivals; /* of all ranks at all barriers */
	char slots[RANKS][SLOT];
} *all;
static int rank, size;

static void die(const char *what) {
	fprintf(stderr, "mpi: %s\n", what);
	exit(1);
}

static int number(const char *name) {
	const char *text = getenv(name);
	char *end = NULL;
	long n = text ? strtol(text, &end, 10) : -1;
	if (!text || end == text || *end || n < 0 || n > RANKS) {
		fprintf(stderr, "mpi: %s=%s is not allowed: want 0 to %d\n", name, text ? text : "", RANKS);
		exit(1);
	}
	return (int)n;
}

int MPI_Init(int *argc, char ***argv) {
	(void)argc, (void)argv;
	rank = number("RANK"), size = number("WORLD_SIZE");
	if (rank >= size) die("RANK is not below WORLD_SIZE");
	const char *path = getenv("MPI_FILE");
	int file = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
	if (file < 0 || ftruncate(file, sizeof *all)) die("MPI_FILE names no file that can be written");
	all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (all == MAP_FAILED) die("MPI_FILE cannot be mapped");
	close(file);
	return MPI_SUCCESS;
}

int MPI_Finalize(void) { return MPI_SUCCESS; }

int MPI_Comm_rank(MPI_Comm comm, int *out) { return (void)comm, *out = rank, MPI_SUCCESS; }

int MPI_Comm_size(MPI_Comm comm, int *out) { return (void)comm, *out = size, MPI_SUCCESS; }

int MPI_Comm_free(MPI_Comm *comm) { return (void)comm, MPI_SUCCESS; }

int MPI_Barrier(MPI_Comm comm) {
	(void)comm;
	long mine = atomic_fetch_add(&all->arrivals, 1), last = (mine / size + 1) * size;
	while (atomic_load(&all->arrivals) < last) usleep(50);
	return MPI_SUCCESS;
}

static size_t bytes(int count, MPI_Datatype type) {
	static const size_t of[] = {0, 1, sizeof(int), sizeof(long), sizeof(long long), sizeof(int64_t), sizeof(double)};
	size_t n = (size_t)count * of[type];
	if (n > SLOT) die("a call hands over more than 1 MiB");
	return n;
}

/* put writes this rank's slot and waits for all ranks. Each calls MPI_Barrier once it has read the slots it wants. */
static void put(const void *data, size_t n) {
	memcpy(all->slots[rank], data, n);
	MPI_Barrier(MPI_COMM_WORLD);
}

int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *split) {
	(void)key;
	put(&color, sizeof color);
	for (int r = 0; r < size; r++)
		if (memcmp(all->slots[r], &color, sizeof color)) die("MPI_Comm_split with several colors is not supported");
	*split = comm;
	return MPI_Barrier(comm);
}

int MPI_Bcast(void *data, int count, MPI_Datatype type, int root, MPI_Comm comm) {
	size_t n = bytes(count, type);
	put(data, n);
	memcpy(data, all->slots[root], n);
	return MPI_Barrier(comm);
}

int MPI_Gather(const void *send, int count, MPI_Datatype type, void *recv, int recv_count, MPI_Datatype recv_type,
	int root, MPI_Comm comm) {
	(void)recv_count, (void)recv_type;
	size_t n = bytes(count, type);
	put(send, n);
	for (int r = 0; rank == root && r < size; r++) memcpy((char *)recv + (size_t)r * n, all->slots[r], n);
	return MPI_Barrier(comm);
}

int MPI_Allgather(const void *send, int count, MPI_Datatype type, void *recv, int recv_count, MPI_Datatype recv_type,
	MPI_Comm comm) {
	(void)count, (void)type;
	size_t n = bytes(recv_count, recv_type);
	put(send == MPI_IN_PLACE ? (char *)recv + (size_t)rank * n : send, n);
	for (int r = 0; r < size; r++) memcpy((char *)recv + (size_t)r * n, all->slots[r], n);
	return MPI_Barrier(comm);
}

#define REDUCE(T)                                                                                        \
	for (int r = 0; r < size; r++)                                                                       \
		for (int i = 0; i < count; i++) {                                                                \
			T x = ((const T *)all->slots[r])[i], *to = (T *)recv + i;                                    \
			*to = r == 0 ? x : op == MPI_SUM ? *to + x : op == MPI_MIN ? (x < *to ? x : *to) : (x > *to ? x : *to); \
		}

int MPI_Allreduce(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
	put(send == MPI_IN_PLACE ? recv : send, bytes(count, type));
	switch (type) {
	case MPI_INT: REDUCE(int) break;
	case MPI_LONG: REDUCE(long) break;
	case MPI_LONG_LONG: REDUCE(long long) break;
	case MPI_INT64_T: REDUCE(int64_t) break;
	case MPI_DOUBLE: REDUCE(double) break;
	default: die("MPI_Allreduce of a type that is not supported");
	}
	return MPI_Barrier(comm);
}
