/* The command line. */
#ifndef CLI_H
#define CLI_H

#include <stdbool.h>
#include <stdint.h>

enum { MAX_PLUGINS = 4 };

/* Versions by word, beside the bits of their numbers. */
enum { ABI_OLDEST = 1 << 30, ABI_NEWEST = 1 << 29, ABI_BETWEEN = 1 << 28 };

struct options {
	const char *plugins[MAX_PLUGINS];	/* more than one: --perf only */
	int nplugins;
	uint32_t abis;				/* bit N: version N, or ABI_...; 0: all */
	uint32_t ranks;				/* bit N: N ranks, 0: each case's own range */
	const char *cases;			/* a glob, NULL: all */
	const char *rules_tested;		/* a glob of the cases' main rules, NULL: all */
	bool list, rules, verbose, strict, perf;
	double timeout;				/* seconds a case */
	uint64_t seed;
	int dev;
	const char *per_rank;			/* NAME=A,B,... of the environment, NULL: none */
	const char *json, *junit;		/* file names or NULL */
	const char *peer;			/* --perf: "bare-tcp" or NULL */
	int rounds;				/* --perf */
};

/* Ends the program on a bad command line. */
void cli_parse(struct options *o, int argc, char **argv);

/* perf.c: the exit status. */
int perf_main(const struct options *o);

#endif
