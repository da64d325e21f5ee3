#include <argp.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "library.h"

const char *argp_program_version = "nccl-net-conformance 1";

enum { STRICT = 256, RULES_TABLE, JSON, JUNIT, DEV, PERF, PEER, ROUNDS, PER_RANK };

static const struct argp_option known[] = {
	{ "plugin", 'p', "PLUGIN", 0, "library to open: a path, or NAME for libnccl-net-NAME.so; twice or more with --perf",
		0 },
	{ "abi", 'a', "LIST", 0, "versions to run, such as 8,12 (net, CollNet), 6 (tuner) or oldest,newest,between of those "
		"that the library has; all", 0 },
	{ "ranks", 'n', "LIST", 0, "numbers of ranks, such as 2,4; as each case has it", 0 },
	{ "case", 'c', "GLOB", 0, "cases to run, such as 'net.*'; all", 0 },
	{ "rule", 'r', "GLOB", 0, "cases that test this rule first, such as net.order; all", 0 },
	{ "list", 'l', NULL, 0, "list the cases and end", 0 },
	{ "rules", RULES_TABLE, NULL, 0, "list the rules with their reasons and end", 0 },
	{ "timeout", 't', "SECONDS", 0, "for a case, after which it counts as hung; 60", 0 },
	{ "seed", 's', "N", 0, "of the data; 1", 0 },
	{ "dev", DEV, "N", 0, "device of the plugin; 0", 0 },
	{ "per-rank", PER_RANK, "NAME=A,B,...", 0,
		"a variable of the environment that differs by rank: the values are taken by turns", 0 },
	{ "strict", STRICT, NULL, 0, "SHOULD rules fail the run as well", 0 },
	{ "verbose", 'v', NULL, 0, "show the plugin's own log", 0 },
	{ "json", JSON, "FILE", 0, "write the results as JSON (with --perf: a line a figure)", 0 },
	{ "junit", JUNIT, "FILE", 0, "write the results as JUnit XML", 0 },
	{ "perf", PERF, NULL, 0, "measure latency and bandwidth instead of checking", 1 },
	{ "peer", PEER, "NAME", 0, "with --perf: measure bare-tcp, sockets without a plugin, in the same run", 1 },
	{ "rounds", ROUNDS, "N", 0, "with --perf: rounds whose median counts; 5", 1 },
	{ 0 },
};

/* A list of numbers from low to high, as a mask. */
static uint32_t mask(struct argp_state *state, const char *what, const char *list, int low, int high)
{
	uint32_t bits = 0;
	const char *at = list;
	char *end;

	do {
		long n = strtol(at, &end, 10);

		if (end == at || (*end && *end != ',') || n < low || n > high)
			argp_error(state, "--%s: \"%s\" is no list of numbers from %d to %d", what, list, low, high);
		bits |= 1u << n;
		at = end + 1;
	} while (*end);
	return bits;
}

/* --abi: numbers and words. */
static uint32_t versions(struct argp_state *state, char *list)
{
	static const struct { const char *name; uint32_t bit; } words[] = {
		{ "oldest", ABI_OLDEST }, { "newest", ABI_NEWEST }, { "between", ABI_BETWEEN },
	};
	uint32_t all = versions_known(NET) | versions_known(COLL) | versions_known(TUNER), bits = 0;
	char numbers[128] = "";
	size_t used = 0;

	for (int n = 1; n < 28; n++)
		if (all & 1u << n && used < sizeof(numbers))
			used += (size_t)snprintf(numbers + used, sizeof(numbers) - used, "%d, ", n);
	for (char *item; (item = strsep(&list, ","));) {
		char *end;
		long n = strtol(item, &end, 10);
		uint32_t bit = end != item && !*end && n > 0 && n < 28 ? all & 1u << n : 0;

		for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
			if (strcmp(item, words[i].name) == 0)
				bit = words[i].bit;
		if (!bit)
			argp_error(state, "--abi: \"%s\" is none of %soldest, newest, between", item, numbers);
		bits |= bit;
	}
	return bits;
}

static double number(struct argp_state *state, const char *what, const char *text, double low, double high)
{
	char *end;
	double n = strtod(text, &end);

	if (end == text || *end || !(n >= low && n <= high))
		argp_error(state, "--%s: \"%s\" is no number from %g to %g", what, text, low, high);
	return n;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;

	switch (key) {
	case 'p':
		if (o->nplugins == MAX_PLUGINS)
			argp_error(state, "--plugin: at most %d", MAX_PLUGINS);
		o->plugins[o->nplugins++] = arg;
		return 0;
	case 'a': o->abis = versions(state, arg); return 0;
	case 'n': o->ranks = mask(state, "ranks", arg, 1, MAX_RANKS); return 0;
	case 'c': o->cases = arg; return 0;
	case 'r': o->rules_tested = arg; return 0;
	case 'l': o->list = true; return 0;
	case RULES_TABLE: o->rules = true; return 0;
	case 't': o->timeout = number(state, "timeout", arg, 1, 86400); return 0;
	case 's': o->seed = (uint64_t)number(state, "seed", arg, 0, 9e15); return 0;
	case DEV: o->dev = (int)number(state, "dev", arg, 0, 1023); return 0;
	case PER_RANK:
		if (!strchr(arg, '=') || *arg == '=')
			argp_error(state, "--per-rank: \"%s\" is no NAME=A,B,...", arg);
		o->per_rank = arg;
		return 0;
	case STRICT: o->strict = true; return 0;
	case 'v': o->verbose = true; return 0;
	case JSON: o->json = arg; return 0;
	case JUNIT: o->junit = arg; return 0;
	case PERF: o->perf = true; return 0;
	case PEER:
		if (strcmp(arg, "bare-tcp") != 0)
			argp_error(state, "--peer: \"%s\" is unknown, bare-tcp is known", arg);
		o->peer = arg;
		return 0;
	case ROUNDS: o->rounds = (int)number(state, "rounds", arg, 1, 1000); return 0;
	case ARGP_KEY_END:
		if (o->nplugins == 0 && !o->list && !o->rules)
			argp_error(state, "--plugin is missing");
		if (o->nplugins > 1 && !o->perf)
			argp_error(state, "--plugin: one at a time, unless --perf compares them");
		if (o->peer && !o->perf)
			argp_error(state, "--peer goes with --perf");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

void cli_parse(struct options *o, int argc, char **argv)
{
	const struct argp argp = {
		.options = known, .parser = parse,
		.doc = "Checks that an NCCL network plugin keeps the rules that NCCL relies on.\v"
			"Exit status: 0 all passed, 1 a case failed, 2 the plugin or the harness could not run.",
	};

	*o = (struct options){ .timeout = 60, .seed = 1, .rounds = 5 };
	argp_err_exit_status = 2;
	argp_parse(&argp, argc, argv, 0, NULL, o);
}
