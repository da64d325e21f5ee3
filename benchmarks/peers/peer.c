/* The collectives of `mcast bench` over MPI, measured in the same way: each
 * iteration is filled, begun at a barrier, timed on every rank from its own
 * way out of the barrier, and checked byte by byte; its time is that of the
 * slowest rank. Prints one JSON object a line.
 *
 *   peer allgather|broadcast|reducescatter BYTES...      bytes of a rank's shard
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A rank sends a table over and over. Its length is prime, so that bytes at
 * a wrong place show; an iteration starts STRIDE further on, so that stale
 * ones do. */
enum { PERIOD = 65521, STRIDE = 7919 };

static int rank, ranks;

static void *need(size_t n)
{
	void *p = malloc(n ? n : 1);
	if (!p) {
		fprintf(stderr, "rank %d: no memory for %zu bytes\n", rank, n);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	memset(p, 0, n);
	return p;
}

/* Small whole numbers: their sums are exact in a float, in any order. */
static float element(int of, uint32_t i)
{
	uint32_t x = (i + 1) * 2654435761u ^ (uint32_t)(of + 1) * 2246822519u;
	x ^= x >> 15;
	x *= 2246822519u;
	return (float)(x >> 24);
}

/* One table: PERIOD elements of a rank, or of the sum over all for of < 0. */
static float *table(int of)
{
	float *t = need(PERIOD * sizeof *t);
	for (uint32_t i = 0; i < PERIOD; i++) {
		if (of >= 0)
			t[i] = element(of, i);
		else
			for (int r = 0; r < ranks; r++)
				t[i] += element(r, i);
	}
	return t;
}

/* Bytes [offset, offset + n) of the pattern of an iteration: written to b, or
 * compared with it. Returns how many bytes of b were wrong. */
static size_t pattern(char *b, size_t n, const float *t, int iter, size_t offset, int write)
{
	const char *bytes = (const char *)t;
	const size_t length = PERIOD * sizeof *t;
	size_t at = ((size_t)iter * STRIDE % PERIOD * sizeof *t + offset) % length, wrong = 0;
	while (n > 0) {
		size_t part = n < length - at ? n : length - at;
		if (write)
			memcpy(b, bytes + at, part);
		else if (memcmp(b, bytes + at, part))
			for (size_t i = 0; i < part; i++)
				wrong += b[i] != bytes[at + i];
		b += part;
		n -= part;
		at = 0;
	}
	return wrong;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

enum collective { ALLGATHER, BROADCAST, REDUCESCATTER };
static const char *const names[] = {"allgather", "broadcast", "reducescatter"};

static size_t measure(enum collective c, size_t bytes, float **tables, const float *sum)
{
	static int iter;
	size_t all = bytes * (size_t)ranks, rounds = all ? ((size_t)256 << 20) / all : 200;
	int iters = rounds < 7 ? 7 : rounds > 1000 ? 1000 : (int)rounds;
	int warmup = iters / 10 < 2 ? 2 : iters / 10;
	char *send = need(c == REDUCESCATTER ? all : bytes), *recv = need(c == ALLGATHER ? all : bytes);
	double *us = need((size_t)iters * sizeof *us), *worst = need((size_t)iters * sizeof *worst);
	unsigned long long wrong = 0, sum_wrong = 0;

	for (int i = -warmup; i < iters; i++) {
		iter++;
		if (c == REDUCESCATTER)
			pattern(send, all, tables[rank], iter, 0, 1);
		else if (c == ALLGATHER)
			pattern(send, bytes, tables[rank], iter, 0, 1);
		else if (rank == 0)
			pattern(recv, bytes, tables[0], iter, 0, 1);
		MPI_Barrier(MPI_COMM_WORLD);
		double begin = MPI_Wtime();
		if (c == ALLGATHER)
			MPI_Allgather(send, (int)bytes, MPI_BYTE, recv, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
		else if (c == BROADCAST)
			MPI_Bcast(recv, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
		else
			MPI_Reduce_scatter_block(send, recv, (int)(bytes / sizeof(float)), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
		double took = MPI_Wtime() - begin;
		if (i >= 0)
			us[i] = took * 1e6;
		if (c == REDUCESCATTER)
			wrong += pattern(recv, bytes, sum, iter, (size_t)rank * bytes, 0);
		else if (c == BROADCAST)
			wrong += pattern(recv, bytes, tables[0], iter, 0, 0);
		else
			for (int r = 0; r < ranks; r++)
				wrong += pattern(recv + (size_t)r * bytes, bytes, tables[r], iter, 0, 0);
	}
	MPI_Reduce(us, worst, iters, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
	MPI_Allreduce(&wrong, &sum_wrong, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0) {
		qsort(worst, (size_t)iters, sizeof *worst, ascending);
		printf("{\"collective\":\"%s\",\"ranks\":%d,\"bytes\":%zu,\"iters\":%d,\"p50_us\":%.3f,\"min_us\":%.3f,\"max_us\":%.3f,\"wrong\":%llu}\n",
			names[c], ranks, bytes, iters, (worst[(iters - 1) / 2] + worst[iters / 2]) / 2, worst[0], worst[iters - 1], sum_wrong);
		fflush(stdout);
	}
	free(send);
	free(recv);
	free(us);
	free(worst);
	return (size_t)sum_wrong;
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	int c = 0;
	while (c < 3 && (argc < 3 || strcmp(argv[1], names[c])))
		c++;
	if (c == 3) {
		if (rank == 0)
			fprintf(stderr, "usage: peer allgather|broadcast|reducescatter BYTES...\n");
		MPI_Finalize();
		return 2;
	}
	float **tables = need((size_t)ranks * sizeof *tables);
	for (int r = 0; r < ranks; r++)
		tables[r] = table(r);
	float *sum = table(-1);
	size_t wrong = 0;
	for (int i = 2; i < argc; i++)
		wrong += measure((enum collective)c, strtoull(argv[i], NULL, 10), tables, sum);
	MPI_Finalize();
	return wrong > 0;
}
