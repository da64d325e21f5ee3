#include <stdlib.h>
#include <string.h>

#include "report.h"

static const char *const result_names[] = { "passed", "advice", "FAILED", "not offered" };

const char *kind_name(enum kind kind)
{
	static const char *const names[] = { "net", "coll", "tuner" };

	return names[kind];
}

static void print_versions(uint32_t versions)
{
	const char *between = "";

	for (int v = 0; v < 32; v++)
		if (versions & 1u << v) {
			printf("%sv%d", between, v);
			between = " ";
		}
}

void report_head(const struct report *r)
{
	printf("# nccl-net-conformance, %s\n", r->plugin);
	for (int kind = NET; kind <= TUNER; kind++) {
		printf("# %-6s", kind_name(kind));
		if (r->probe->versions[kind]) {
			print_versions(r->probe->versions[kind]);
			printf(", \"%s\"\n", r->probe->name[kind]);
		} else {
			printf("not offered\n");
		}
	}
	printf("# opened in %.1f ms; device %d, seed %lu, %.0f s a case\n#\n", 1e3 * r->probe->load,
		r->options->dev, (unsigned long)r->options->seed, r->options->timeout);
	printf("# %-32s %-9s %5s  %-11s %8s  %s\n", "case", "abi", "ranks", "result", "time (s)", "note");
	fflush(stdout);
}

/* Output of the ranks, each line behind a mark. */
static void print_quoted(const char *text)
{
	while (*text) {
		size_t n = strcspn(text, "\n");

		printf("#       | %.*s\n", (int)n, text);
		text += n + (text[n] == '\n');
	}
}

void report_add(struct report *r, const struct outcome *out)
{
	char abi[16];

	if (r->count == r->room) {
		r->room = r->room ? 2 * r->room : 64;
		r->outcomes = realloc(r->outcomes, r->room * sizeof(*r->outcomes));
		if (!r->outcomes) {
			perror("nccl-net-conformance");
			exit(2);
		}
	}
	r->outcomes[r->count++] = *out;
	r->passed += out->result == PASSED;
	r->advice += out->result == ADVICE;
	r->failed += out->result == FAILED_CASE;
	r->declined += out->result == NOT_OFFERED;
	snprintf(abi, sizeof(abi), "%s v%d", kind_name(out->test->kind), out->abi);
	printf("  %-32s %-9s %5d  %-11s %8.2f  %s\n", out->test->name, abi, out->ranks,
		result_names[out->result], out->seconds, out->note);
	for (int i = 0; i < out->nfailures; i++) {
		const struct failure *f = &out->failures[i];

		printf("#     %s (%s), rank %d: %s\n", rules[f->rule].name,
			rules[f->rule].level == MUST ? "must" : "should", f->rank, f->text);
		if (i == 0)
			printf("#       why: %s\n", rules[f->rule].why);
	}
	if (out->nfailures > 0 && out->warning[0])
		printf("#       the plugin's last warning: %s\n", out->warning);
	print_quoted(out->output);
	fflush(stdout);
}

enum cell { UNTRIED, KEPT, ADVISED, BROKEN };

/* Of one rule over all cases of a version. */
static enum cell verdict(const struct report *r, int rule, int abi)
{
	enum cell cell = UNTRIED;

	for (size_t i = 0; i < r->count; i++) {
		const struct outcome *out = &r->outcomes[i];
		enum cell here = out->checked[rule] ? KEPT : UNTRIED;

		if (out->abi != abi)
			continue;
		for (int f = 0; f < out->nfailures; f++)
			if (out->failures[f].rule == (enum rule)rule)
				here = rules[rule].level == MUST ? BROKEN : ADVISED;
		if (here > cell)
			cell = here;
	}
	return cell;
}

static uint32_t versions_run(const struct report *r)
{
	uint32_t versions = 0;

	for (size_t i = 0; i < r->count; i++)
		versions |= 1u << r->outcomes[i].abi;
	return versions;
}

/* Whether a case was to test the rule, or did. */
static bool concerned(const struct report *r, int rule)
{
	for (size_t i = 0; i < r->count; i++)
		if (r->outcomes[i].test->rule == (enum rule)rule || r->outcomes[i].checked[rule])
			return true;
	return false;
}

void report_end(const struct report *r)
{
	static const char *const cells[] = { "-", "ok", "advice", "FAILED" };
	uint32_t versions = versions_run(r);

	printf("#\n# %-32s", "rule");
	for (int v = 0; v < 32; v++)
		if (versions & 1u << v)
			printf(" v%-5d", v);
	printf("\n");
	for (int rule = 0; rule < RULES; rule++) {
		if (!concerned(r, rule))
			continue;
		printf("# %-32s", rules[rule].name);
		for (int v = 0; v < 32; v++)
			if (versions & 1u << v)
				printf(" %-6s", cells[verdict(r, rule, v)]);
		printf("\n");
	}
	printf("#\n%d passed, %d failed, %d with advice, %d not offered\n", r->passed, r->failed, r->advice,
		r->declined);
}

void report_cases(const struct test *tests)
{
	for (const struct test *t = tests; t; t = t->next) {
		char ranks[16];

		snprintf(ranks, sizeof(ranks), t->min_ranks == t->max_ranks ? "%d" : "%d-%d", t->min_ranks, t->max_ranks);
		printf("%-32s %-5s %-4s %-28s %s\n", t->name, kind_name(t->kind), ranks, rules[t->rule].name, t->what);
	}
}

void report_rules(void)
{
	printf("| rule | level | why |\n|---|---|---|\n");
	for (int i = 0; i < RULES; i++)
		printf("| `%s` | %s | %s |\n", rules[i].name, rules[i].level == MUST ? "must" : "should", rules[i].why);
}
