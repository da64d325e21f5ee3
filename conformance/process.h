/* One case in processes of its own. */
#ifndef PROCESS_H
#define PROCESS_H

#include "board.h"
#include "cli.h"

enum result { PASSED, ADVICE, FAILED_CASE, NOT_OFFERED };

struct outcome {
	const struct test *test;
	int abi;
	int ranks;
	enum result result;
	double seconds;
	int nfailures;
	struct failure failures[FAILURES];
	unsigned char checked[RULES];	/* broken, or kept in a case that ran to its end */
	char note[TEXT_BYTES];		/* of the case, or why it is not offered */
	char warning[TEXT_BYTES];	/* the plugin's last, of the rank that failed first, else of rank 0 */
	char output[4096];		/* the end of the ranks' output, if the case failed */
};

/* area: memory shared with the ranks, or NULL. */
void run_case(struct outcome *out, const struct options *o, const char *plugin,
	const struct test *test, int abi, int ranks, void *area);

#endif
