/* nccl-net-conformance: all versions that the library has, all cases, each in
 * fresh processes. */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

static struct test *tests, **last = &tests;

void test_register(struct test *test)
{
	*last = test;
	last = &test->next;
}

/* Ranks end without cleaning up, so a leak checker would only see the harness. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "detect_leaks=0"; }

static bool wanted(const struct options *o, const struct test *t)
{
	return (!o->cases || fnmatch(o->cases, t->name, FNM_EXTMATCH) == 0) &&
		(!o->rules_tested || fnmatch(o->rules_tested, rules[t->rule].name, FNM_EXTMATCH) == 0);
}

/* Whether the case runs with n ranks. A count outside the range of a case that
 * has one count only means that count. */
static bool ranks_wanted(const struct options *o, const struct test *t, int n)
{
	if (n < t->min_ranks || n > t->max_ranks)
		return false;
	return o->ranks == 0 || o->ranks & 1u << n || t->min_ranks == t->max_ranks;
}

static void run_version(struct report *r, enum kind kind, int abi)
{
	struct outcome *out = malloc(sizeof(*out));

	if (!out) {
		perror("nccl-net-conformance");
		exit(2);
	}
	for (const struct test *t = tests; t; t = t->next)
		for (int n = 1; t->kind == kind && wanted(r->options, t) && n <= MAX_RANKS; n++)
			if (ranks_wanted(r->options, t, n)) {
				run_case(out, r->options, r->plugin, t, abi, n, NULL);
				report_add(r, out);
			}
	free(out);
}

/* An interface that the library lacks: one line for each of its cases. */
static void run_nothing(struct report *r, enum kind kind, int abi)
{
	struct outcome *out = calloc(1, sizeof(*out));

	if (!out) {
		perror("nccl-net-conformance");
		exit(2);
	}
	for (const struct test *t = tests; t; t = t->next)
		if (t->kind == kind && wanted(r->options, t)) {
			*out = (struct outcome){ .test = t, .abi = abi, .ranks = t->min_ranks, .result = NOT_OFFERED };
			snprintf(out->note, sizeof(out->note), "the library has no such symbol");
			report_add(r, out);
		}
	free(out);
}

static void run_kind(struct report *r, enum kind kind)
{
	uint32_t known = versions_known(kind), has = r->probe->versions[kind];
	uint32_t run = versions_asked(r->options, has), lacks = r->options->abis & known & ~has;

	if (!has && (!r->options->abis || lacks || r->options->abis >= ABI_BETWEEN)) {
		run_nothing(r, kind, newest(known));
		return;
	}
	for (int v = 0; v <= newest(known); v++)
		if (run & 1u << v)
			run_version(r, kind, v);
		else if (lacks & 1u << v)
			run_nothing(r, kind, v);
}

/* What there has to be before any case: no case of the list. */
static void find_device(struct rank *r)
{
	int ndev = -1, result = net_init(&r->net, 1, NULL);

	if (result != ABI_SUCCESS)
		not_offered("its init gives %d (%s)", result, result_name(result));
	result = net_devices(&r->net, &ndev);
	if (result != ABI_SUCCESS)
		not_offered("its devices gives %d (%s)", result, result_name(result));
	if (ndev <= 0)
		not_offered("it finds no device");
	if (ndev <= r->dev)
		not_offered("it finds %d device%s, so --dev is at most %d, not %d", ndev, ndev == 1 ? "" : "s", ndev - 1, r->dev);
}

/* A crash or a hang is for the cases to report. */
static bool device_found(const struct options *o, const struct probe *probe)
{
	static const struct test test = { .name = "devices", .kind = NET, .rule = NET_LOAD, .run = find_device };
	uint32_t asked = versions_asked(o, probe->versions[NET]);
	struct outcome *out = malloc(sizeof(*out));
	bool found;

	if (!out) {
		perror("nccl-net-conformance");
		exit(2);
	}
	run_case(out, o, o->plugins[0], &test, newest(asked ? asked : probe->versions[NET]), 1, NULL);
	found = out->result != NOT_OFFERED;
	if (!found)
		fprintf(stderr, "nccl-net-conformance: %s cannot be tested here: %s%s%s\n", o->plugins[0], out->note,
			out->warning[0] ? "; its last warning: " : "", out->warning);
	free(out);
	return found;
}

static int check(const struct options *o)
{
	struct probe probe;
	struct report report = { .options = o, .plugin = o->plugins[0], .probe = &probe };
	bool written = true;

	library_probe(&probe, o->plugins[0], o->timeout);
	if (probe.error[0]) {
		fprintf(stderr, "nccl-net-conformance: %s\n", probe.error);
		return 2;
	}
	if (!probe.versions[NET]) {
		fprintf(stderr, "nccl-net-conformance: %s has no ncclNetPlugin_v%d to v%d; NCCL would not take it\n",
			o->plugins[0], __builtin_ctz(versions_known(NET)), newest(versions_known(NET)));
		return 2;
	}
	if (!device_found(o, &probe))
		return 2;
	report_head(&report);
	for (int kind = NET; kind <= TUNER; kind++)
		run_kind(&report, kind);
	report_end(&report);
	if (o->json && report_json(&report, o->json) != 0)
		written = false;
	if (o->junit && report_junit(&report, o->junit) != 0)
		written = false;
	free(report.outcomes);
	if (!written)
		return 2;
	if (report.count == 0) {
		fprintf(stderr, "nccl-net-conformance: no case was run: --case, --rule, --abi or --ranks leave none (--list; tuners "
			"have versions of their own)\n");
		return 2;
	}
	return report.failed > 0 || (o->strict && report.advice > 0) ? 1 : 0;
}

int main(int argc, char **argv)
{
	struct options o;

	cli_parse(&o, argc, argv);
	if (o.list)
		report_cases(tests);
	if (o.rules)
		report_rules();
	if (o.list || o.rules)
		return 0;
#ifdef HAVE_PERF
	if (o.perf)
		return perf_main(&o);
#endif
	return check(&o);
}
