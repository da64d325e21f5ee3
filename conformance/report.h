/* What the run says, on the screen and in files. */
#ifndef REPORT_H
#define REPORT_H

#include "library.h"
#include "process.h"

struct report {
	const struct options *options;
	const char *plugin;
	const struct probe *probe;
	struct outcome *outcomes;
	size_t count, room;
	int passed, advice, failed, declined;
};

void report_head(const struct report *r);
/* Prints the line of a case and keeps the outcome. */
void report_add(struct report *r, const struct outcome *out);
/* The table of rules and the sum. */
void report_end(const struct report *r);
/* 0, or -1 when the file could not be written, with a message. */
int report_json(const struct report *r, const char *file);
int report_junit(const struct report *r, const char *file);
/* For --list and --rules. */
void report_cases(const struct test *tests);
void report_rules(void);

const char *kind_name(enum kind kind);

#endif
