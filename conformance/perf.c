/* Perf mode: rounds in which each contestant runs once, in turn, in fresh
 * processes; the result is the median of the rounds. */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "library.h"
#include "perf.h"

enum { MAX_CONTESTANTS = MAX_PLUGINS + 1 };

static const char *const figure_names[FIGURES] = {
	"latency", "bandwidth", "allgather", "reduce-scatter", "allreduce",
};

struct contestant {
	const char *name;		/* NULL in plugin: bare-tcp */
	const char *plugin;
	int abi[2];			/* by enum kind NET, COLL; 0: not offered */
	struct perf_round *rounds;
	bool failed;
};

static void look_up(struct contestant *c, const struct options *o, const char *plugin)
{
	struct probe probe;
	const char *base = strrchr(plugin, '/');

	library_probe(&probe, plugin, o->timeout);
	if (probe.error[0]) {
		fprintf(stderr, "nccl-net-conformance: %s\n", probe.error);
		exit(2);
	}
	c->name = base ? base + 1 : plugin;
	c->plugin = plugin;
	c->abi[NET] = newest(versions_asked(o, probe.versions[NET]));
	c->abi[COLL] = newest(versions_asked(o, probe.versions[COLL]));
}

static bool takes_part(const struct contestant *c, enum kind kind)
{
	return c->plugin ? c->abi[kind] != 0 : kind == NET;
}

/* One contestant's turn; a round that fails ends its part in the run. */
static void take_turn(struct contestant *c, const struct options *o, const struct test *test, int ranks,
	struct perf_round *area, int round)
{
	struct outcome out = { .result = PASSED };

	if (c->failed || !takes_part(c, test->kind))
		return;
	memset(area, 0, sizeof(*area));
	if (c->plugin)
		run_case(&out, o, c->plugin, test, c->abi[test->kind], ranks, area);
	else if (perf_tcp(area, o->timeout) != 0)
		out.result = FAILED_CASE;
	c->failed = out.result == FAILED_CASE;	/* no more of this measurement, and no figure */
	if (c->failed)
		fprintf(stderr, "# %s, %s, round %d: failed: %s\n", c->name, test->name, round + 1,
			out.nfailures ? out.failures[0].text : "no answer from the sockets");
	c->rounds[round] = *area;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(const struct contestant *c, int rounds, enum figure figure, int size)
{
	double *us = malloc(sizeof(double) * (size_t)rounds), m;

	if (!us)
		return 0;
	for (int i = 0; i < rounds; i++)
		us[i] = c->rounds[i].us[figure][size];
	qsort(us, (size_t)rounds, sizeof(double), by_size);
	m = rounds % 2 ? us[rounds / 2] : (us[rounds / 2 - 1] + us[rounds / 2]) / 2;
	free(us);
	return c->failed ? 0 : m;
}

/* As nccl-tests has it: algbw is size over time; busbw is the rate on a link. */
static double bus_factor(enum figure figure, int ranks)
{
	double share = (ranks - 1.0) / ranks;

	return figure == ALLREDUCE ? 2 * share : figure >= ALLGATHER ? share : 1;
}

static void write_line(FILE *json, const struct contestant *c, const struct options *o, enum kind kind,
	enum figure figure, int ranks, int size, double us)
{
	double algbw = (double)perf_sizes[size] / us / 1e3;

	fprintf(json, "{\"plugin\": \"%s\", \"abi\": %d, \"test\": \"%s\", \"ranks\": %d, \"bytes\": %zu, \"us\": %.3f, "
		"\"algbw_GBps\": %.4f, \"busbw_GBps\": %.4f, \"rounds_us\": [", c->name, c->plugin ? c->abi[kind] : 0,
		figure_names[figure], ranks, perf_sizes[size], us, algbw, algbw * bus_factor(figure, ranks));
	for (int i = 0; i < o->rounds; i++)
		fprintf(json, "%s%.3f", i ? ", " : "", c->rounds[i].us[figure][size]);
	fprintf(json, "]}\n");
}

static void table(const struct contestant *all, int n, const struct options *o, enum kind kind, enum figure figure,
	int ranks, FILE *json)
{
	printf("#\n# %s, %d ranks\n#%12s", figure_names[figure], ranks, "size");
	for (int c = 0; c < n; c++)
		if (takes_part(&all[c], kind))
			printf("  %30.30s", all[c].name);
	printf("\n#%12s", "(B)");
	for (int c = 0; c < n; c++)
		if (takes_part(&all[c], kind))
			printf("  %10s %9s %9s", "time (us)", "algbw", "busbw");
	printf("\n");
	for (int size = 0; size < PERF_SIZES; size++) {
		printf("%13zu", perf_sizes[size]);
		for (int c = 0; c < n; c++) {
			double us = median(&all[c], o->rounds, figure, size);
			double algbw = us > 0 ? (double)perf_sizes[size] / us / 1e3 : 0;

			if (!takes_part(&all[c], kind))
				continue;
			if (us > 0)
				printf("  %10.2f %9.3f %9.3f", us, algbw, algbw * bus_factor(figure, ranks));
			else
				printf("  %10s %9s %9s", "-", "-", "-");
			if (us > 0 && json)
				write_line(json, &all[c], o, kind, figure, ranks, size, us);
		}
		printf("\n");
	}
	fflush(stdout);
}

/* How many contestants failed. */
static int measure(struct contestant *all, int n, const struct options *o, const struct test *test, int ranks,
	struct perf_round *area, FILE *json)
{
	int failures = 0, first = test->kind == NET ? LATENCY : ALLGATHER, last = test->kind == NET ? BANDWIDTH : ALLREDUCE;

	if (o->cases && fnmatch(o->cases, test->name, FNM_EXTMATCH) != 0)
		return 0;
	for (int c = 0; c < n; c++) {
		memset(all[c].rounds, 0, sizeof(struct perf_round) * (size_t)o->rounds);
		all[c].failed = false;
	}
	for (int round = 0; round < o->rounds; round++)
		for (int c = 0; c < n; c++)
			take_turn(&all[c], o, test, ranks, area, round);
	for (int figure = first; figure <= last; figure++)
		table(all, n, o, test->kind, (enum figure)figure, ranks, json);
	for (int c = 0; c < n; c++)
		failures += all[c].failed;
	return failures;
}

int perf_main(const struct options *o)
{
	struct contestant all[MAX_CONTESTANTS] = { { 0 } };
	struct perf_round *area = mmap(NULL, sizeof(*area), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	FILE *json = o->json ? fopen(o->json, "w") : NULL;
	int n = 0, failures;

	if ((o->json && !json) || area == MAP_FAILED) {
		perror(o->json ? o->json : "nccl-net-conformance");
		return 2;
	}
	for (int i = 0; i < o->nplugins; i++)
		look_up(&all[n++], o, o->plugins[i]);
	if (o->peer)
		all[n++].name = o->peer;
	printf("# nccl-net-conformance --perf: host memory, one process a rank, median of %d rounds in turn\n", o->rounds);
	printf("# latency: one way, half a ping-pong; bandwidth: %d messages in flight; GB/s are 10^9 bytes\n",
		PERF_IN_FLIGHT);
	for (int c = 0; c < n; c++) {
		all[c].rounds = calloc((size_t)o->rounds, sizeof(struct perf_round));
		if (!all[c].rounds)
			return 2;
		if (all[c].plugin)
			printf("# %s: net v%d, CollNet v%d\n", all[c].name, all[c].abi[NET], all[c].abi[COLL]);
	}
	failures = measure(all, n, o, &perf_net, 2, area, json);
	for (int ranks = 2; ranks <= MAX_RANKS; ranks++)
		if (o->ranks ? o->ranks & 1u << ranks : ranks == 4)
			failures += measure(all, n, o, &perf_coll, ranks, area, json);
	for (int c = 0; c < n; c++)
		free(all[c].rounds);
	if (json && fclose(json) != 0) {
		perror(o->json);
		return 2;
	}
	return failures ? 1 : 0;
}
