/* The collectives of `mcast bench` over MPI, measured in the same way: each
 * iteration is filled, begun at a barrier, timed on every rank from its own
 * way out of the barrier, and checked byte by byte; its time is the slowest
 * rank's. Prints one JSON object a line; cpu_s is the processor time of all
 * ranks for an iteration.
 *
 *   peer allgather|broadcast|reducescatter|overlap [--iters=N] [--warmup=N] BYTES...
 *
 * BYTES is the size of a rank's shard. An overlap is an Allgather and a
 * Reduce-Scatter, alone and at once: by two threads, since a nonblocking
 * Reduce-Scatter takes another algorithm, which sends everything to one rank.
 */
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* A rank sends a table over and over. Its length is prime, so that bytes at
 * a wrong place show; an iteration starts STRIDE further on, so that stale
 * ones do. */
enum { PERIOD = 65521, STRIDE = 7919 };

static int rank, ranks;
static int given_iters, given_warmup = -1; /* 0, -1: by size */
static MPI_Comm gathers, scatters;         /* of one thread each */

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

enum collective { ALLGATHER, BROADCAST, REDUCESCATTER, OVERLAP, COLLECTIVES };
static const char *const names[] = {"allgather", "broadcast", "reducescatter", "overlap"};

/* The buffers of a size: of an Allgather or a Broadcast, and of a
 * Reduce-Scatter. */
struct load {
	size_t bytes; /* of a shard */
	char *shard, *gathered, *whole, *reduced;
};

static void *gather(void *of)
{
	struct load *l = of;
	MPI_Allgather(l->shard, (int)l->bytes, MPI_BYTE, l->gathered, (int)l->bytes, MPI_BYTE, gathers);
	return NULL;
}

static void scatter(struct load *l)
{
	MPI_Reduce_scatter_block(l->whole, l->reduced, (int)(l->bytes / sizeof(float)), MPI_FLOAT, MPI_SUM, scatters);
}

static void fill(enum collective c, struct load *l, float **tables, int iter)
{
	if (c == REDUCESCATTER || c == OVERLAP)
		pattern(l->whole, l->bytes * (size_t)ranks, tables[rank], iter, 0, 1);
	if (c == ALLGATHER || c == OVERLAP)
		pattern(l->shard, l->bytes, tables[rank], iter, 0, 1);
	if (c == BROADCAST && rank == 0)
		pattern(l->gathered, l->bytes, tables[0], iter, 0, 1);
}

static void run(enum collective c, struct load *l)
{
	pthread_t thread;
	switch (c) {
	case ALLGATHER:
		gather(l);
		break;
	case BROADCAST:
		MPI_Bcast(l->gathered, (int)l->bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
		break;
	case REDUCESCATTER:
		scatter(l);
		break;
	default:
		if (pthread_create(&thread, NULL, gather, l))
			MPI_Abort(MPI_COMM_WORLD, 1);
		scatter(l);
		pthread_join(thread, NULL);
	}
}

/* How many bytes of a result are wrong. */
static size_t check(enum collective c, struct load *l, float **tables, const float *sum, int iter)
{
	size_t wrong = 0;
	if (c == REDUCESCATTER || c == OVERLAP)
		wrong += pattern(l->reduced, l->bytes, sum, iter, (size_t)rank * l->bytes, 0);
	if (c == BROADCAST)
		wrong += pattern(l->gathered, l->bytes, tables[0], iter, 0, 0);
	if (c == ALLGATHER || c == OVERLAP)
		for (int r = 0; r < ranks; r++)
			wrong += pattern(l->gathered + (size_t)r * l->bytes, l->bytes, tables[r], iter, 0, 0);
	return wrong;
}

/* Seconds that this process has taken of processors. */
static double processors(void)
{
	struct rusage u;
	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static size_t measure(enum collective c, size_t bytes, float **tables, const float *sum)
{
	static int iter;
	size_t all = bytes * (size_t)ranks, rounds = all ? ((size_t)256 << 20) / all : 200;
	int iters = given_iters ? given_iters : rounds < 7 ? 7 : rounds > 1000 ? 1000 : (int)rounds;
	int warmup = given_warmup >= 0 ? given_warmup : iters / 10 < 2 ? 2 : iters / 10;
	int gathering = c == ALLGATHER || c == OVERLAP, summing = c == REDUCESCATTER || c == OVERLAP;
	struct load l = {bytes, need(gathering ? bytes : 0), need(gathering ? all : c == BROADCAST ? bytes : 0),
		need(summing ? all : 0),
		need(summing ? bytes : 0)};
	double *us = need((size_t)iters * sizeof *us), *worst = need((size_t)iters * sizeof *worst);
	double used = 0, sum_used = 0;
	unsigned long long wrong = 0, sum_wrong = 0;

	for (int i = -warmup; i < iters; i++) {
		fill(c, &l, tables, ++iter);
		MPI_Barrier(MPI_COMM_WORLD);
		double before = processors(), begin = MPI_Wtime();
		run(c, &l);
		if (i >= 0) {
			us[i] = (MPI_Wtime() - begin) * 1e6;
			used += processors() - before;
		}
		wrong += check(c, &l, tables, sum, iter);
	}
	MPI_Reduce(us, worst, iters, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
	MPI_Reduce(&used, &sum_used, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
	MPI_Allreduce(&wrong, &sum_wrong, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0) {
		qsort(worst, (size_t)iters, sizeof *worst, ascending);
		printf("{\"collective\":\"%s\",\"ranks\":%d,\"bytes\":%zu,\"iters\":%d,"
			"\"p50_us\":%.3f,\"min_us\":%.3f,\"max_us\":%.3f,\"cpu_s\":%.6f,\"wrong\":%llu}\n",
			names[c], ranks, bytes, iters, (worst[(iters - 1) / 2] + worst[iters / 2]) / 2, worst[0], worst[iters - 1],
			sum_used / iters, sum_wrong);
		fflush(stdout);
	}
	free(l.shard);
	free(l.gathered);
	free(l.whole);
	free(l.reduced);
	free(us);
	free(worst);
	return (size_t)sum_wrong;
}

int main(int argc, char **argv)
{
	int threads;
	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &threads);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	int c = 0, at = 2;
	while (c < COLLECTIVES && (argc < 3 || strcmp(argv[1], names[c])))
		c++;
	for (; at < argc && argv[at][0] == '-'; at++)
		if (sscanf(argv[at], "--iters=%d", &given_iters) + sscanf(argv[at], "--warmup=%d", &given_warmup) <= 0)
			c = COLLECTIVES;
	if (c == COLLECTIVES || at == argc || given_iters < 0) {
		if (rank == 0)
			fprintf(stderr, "usage: peer allgather|broadcast|reducescatter|overlap [--iters=N] [--warmup=N] BYTES...\n");
		MPI_Finalize();
		return 2;
	}
	if (c == OVERLAP && threads < MPI_THREAD_MULTIPLE) {
		fprintf(stderr, "this MPI does not let two threads call it at once, as an overlap does\n");
		MPI_Abort(MPI_COMM_WORLD, 3);
	}
	MPI_Comm_dup(MPI_COMM_WORLD, &gathers);
	MPI_Comm_dup(MPI_COMM_WORLD, &scatters);
	float **tables = need((size_t)ranks * sizeof *tables);
	for (int r = 0; r < ranks; r++)
		tables[r] = table(r);
	float *sum = table(-1);
	size_t wrong = 0;
	for (; at < argc; at++) {
		size_t bytes = strtoull(argv[at], NULL, 10);
		if (c == OVERLAP) {
			wrong += measure(ALLGATHER, bytes, tables, sum);
			wrong += measure(REDUCESCATTER, bytes, tables, sum);
		}
		wrong += measure((enum collective)c, bytes, tables, sum);
	}
	MPI_Finalize();
	return wrong > 0;
}
