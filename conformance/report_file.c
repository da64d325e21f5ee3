/* JSON and JUnit XML, for machines. */
#include <errno.h>
#include <string.h>

#include "report.h"

static const char *const words[] = { "passed", "advice", "failed", "not offered" };

/* Plugin output may hold anything: a byte that is not plain ASCII becomes '?'. */
static int plain(int c) { return c >= 0x20 && c < 0x7f ? c : '?'; }

static void json_text(FILE *f, const char *text)
{
	fputc('"', f);
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			fputc('\\', f);
		if (*text == '\n')
			fputs("\\n", f);
		else
			fputc(plain((unsigned char)*text), f);
	}
	fputc('"', f);
}

static void xml_text(FILE *f, const char *text)
{
	for (; *text; text++)
		switch (*text) {
		case '<': fputs("&lt;", f); break;
		case '>': fputs("&gt;", f); break;
		case '&': fputs("&amp;", f); break;
		case '"': fputs("&quot;", f); break;
		case '\n': fputc('\n', f); break;
		default: fputc(plain((unsigned char)*text), f);
		}
}

static FILE *create(const char *file)
{
	FILE *f = fopen(file, "w");

	if (!f)
		fprintf(stderr, "nccl-net-conformance: %s: %s\n", file, strerror(errno));
	return f;
}

static int finish(FILE *f, const char *file)
{
	bool bad = ferror(f) != 0;

	if (fclose(f) == 0 && !bad)
		return 0;
	fprintf(stderr, "nccl-net-conformance: %s: %s\n", file, strerror(errno));
	return -1;
}

static void json_outcome(FILE *f, const struct outcome *out)
{
	const char *between = "";

	fprintf(f, "    {\"case\": \"%s\", \"kind\": \"%s\", \"abi\": %d, \"ranks\": %d, \"result\": \"%s\", \"seconds\": "
		"%.3f, \"note\": ",
		out->test->name, kind_name(out->test->kind), out->abi, out->ranks, words[out->result], out->seconds);
	json_text(f, out->note);
	fprintf(f, ", \"rules\": [");
	for (int i = 0; i < RULES; i++)
		if (out->checked[i]) {
			fprintf(f, "%s\"%s\"", between, rules[i].name);
			between = ", ";
		}
	fprintf(f, "], \"failures\": [");
	for (int i = 0; i < out->nfailures; i++) {
		const struct failure *x = &out->failures[i];

		fprintf(f, "%s{\"rule\": \"%s\", \"level\": \"%s\", \"rank\": %d, \"text\": ", i ? ", " : "",
			rules[x->rule].name, rules[x->rule].level == MUST ? "must" : "should", x->rank);
		json_text(f, x->text);
		fputc('}', f);
	}
	fprintf(f, "]}");
}

int report_json(const struct report *r, const char *file)
{
	FILE *f = create(file);

	if (!f)
		return -1;
	fprintf(f, "{\n  \"plugin\": ");
	json_text(f, r->plugin);
	fprintf(f,
		",\n  \"seed\": %lu, \"passed\": %d, \"failed\": %d, \"advice\": %d, \"not_offered\": %d,\n  \"results\": [\n",
		(unsigned long)r->options->seed, r->passed, r->failed, r->advice, r->declined);
	for (size_t i = 0; i < r->count; i++) {
		json_outcome(f, &r->outcomes[i]);
		fputs(i + 1 < r->count ? ",\n" : "\n", f);
	}
	fprintf(f, "  ]\n}\n");
	return finish(f, file);
}

static void junit_outcome(FILE *f, const struct report *r, const struct outcome *out)
{
	bool bad = out->result == FAILED_CASE || (out->result == ADVICE && r->options->strict);

	fprintf(f, "  <testcase classname=\"%s.v%d\" name=\"%s, %d ranks\" time=\"%.3f\">",
		kind_name(out->test->kind), out->abi, out->test->name, out->ranks, out->seconds);
	if (bad) {
		fprintf(f, "<failure message=\"%s\">", rules[out->failures[0].rule].name);
		for (int i = 0; i < out->nfailures; i++) {
			fprintf(f, "%s, rank %d: ", rules[out->failures[i].rule].name, out->failures[i].rank);
			xml_text(f, out->failures[i].text);
			fputc('\n', f);
		}
		xml_text(f, out->output);
		fprintf(f, "</failure>");
	} else if (out->result == NOT_OFFERED) {
		fprintf(f, "<skipped message=\"");
		xml_text(f, out->note);
		fprintf(f, "\"/>");
	}
	fprintf(f, "</testcase>\n");
}

int report_junit(const struct report *r, const char *file)
{
	FILE *f = create(file);
	double seconds = 0;

	if (!f)
		return -1;
	for (size_t i = 0; i < r->count; i++)
		seconds += r->outcomes[i].seconds;
	fprintf(f, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"nccl-net-conformance ");
	xml_text(f, r->plugin);
	fprintf(f, "\" tests=\"%zu\" failures=\"%d\" skipped=\"%d\" time=\"%.3f\">\n", r->count,
		r->failed + (r->options->strict ? r->advice : 0), r->declined, seconds);
	for (size_t i = 0; i < r->count; i++)
		junit_outcome(f, r, &r->outcomes[i]);
	fprintf(f, "</testsuite>\n");
	return finish(f, file);
}
