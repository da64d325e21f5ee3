/* Each rank is a process, forked by a runner that never opened the plugin. The
 * runner watches: a rank that crashes, hangs or leaves is a failure of the rule
 * that its thread was under, with the call that it was in. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "process.h"

/* Ranks that another one's failure stops get this long, in seconds. */
static const double grace = 3;

/* Sets a variable of NAME=A,B,... to the value for a rank: ranks take them in turn. */
static void set_variable(const char *text, int rank)
{
	char *all = strdup(text), *values = strchr(all, '=');
	int count = 1;

	*values++ = 0;
	for (const char *c = values; (c = strchr(c, ',')); c++)
		count++;
	for (rank %= count; rank > 0; rank--)
		values = strchr(values, ',') + 1;
	setenv(all, strsep(&values, ","), 1);
	free(all);
}

static void rank_main(struct rank *r, const struct test *test, int abi, int output)
{
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (output >= 0) {
		dup2(output, STDOUT_FILENO);
		dup2(output, STDERR_FILENO);
	}
	if (r->options->per_rank)
		set_variable(r->options->per_rank, r->rank);
	self = r;
	lane = &r->board->place[r->rank].lanes[0];
	lane->polling = RULES;
	library_open(r, test->kind, abi);
	under(test->rule);
	test->run(r);
	barrier(r);
	atomic_store(&r->board->place[r->rank].state, FINISHED);
	call_begin("exit()", 0, 0, 0);
	exit(0);
}

/* Formats the newest calls of a lane, the last one first. */
static void describe(char *text, size_t bytes, const struct lane *l)
{
	size_t at = 0;

	for (unsigned long i = 0; i < 3 && i < l->count && at < bytes; i++) {
		const struct call *c = &l->calls[(l->count - 1 - i) % LANE_CALLS];

		at += (size_t)snprintf(text + at, bytes - at, i == 0 ? (l->open ? "in " : "after ") : ", before it ");
		if (at < bytes)
			at += (size_t)snprintf(text + at, bytes - at, c->fmt, c->arg[0], c->arg[1], c->arg[2]);
		if (c->times > 1 && at < bytes)
			at += (size_t)snprintf(text + at, bytes - at, " x%lu", c->times);
	}
	if (l->count == 0)
		snprintf(text, bytes, "before any call");
}

/* The lane that is inside a call, or else the first. */
static const struct lane *lane_in_question(const struct place *p)
{
	for (int i = 0; i < MAX_THREADS; i++)
		if (p->lanes[i].open)
			return &p->lanes[i];
	return &p->lanes[0];
}

static void blame(struct board *b, int rank, const struct lane *l, enum rule rule, const char *what)
{
	char calls[TEXT_BYTES - 100], text[TEXT_BYTES];

	describe(calls, sizeof(calls), l);
	snprintf(text, sizeof(text), "%s %s", what, calls);
	board_fail(b, rule, rank, true, text);
	atomic_store(&b->stop, 1);
}

/* A process of this rank has ended; says whether that was as it should be. */
static void judge(struct board *b, int rank, int status, bool killed)
{
	struct place *p = &b->place[rank];
	enum state state = atomic_load(&p->state);
	const struct lane *l = lane_in_question(p);
	char text[80];

	if (killed || state == FAILED || (state == DYING && WIFSIGNALED(status)))
		return;
	if (WIFSIGNALED(status)) {
		const char *name = sigabbrev_np(WTERMSIG(status));

		snprintf(text, sizeof(text), "crashed with SIG%s (%s)", name ? name : "?", strsignal(WTERMSIG(status)));
		blame(b, rank, l, l->rule, text);
	} else if ((state != FINISHED && state != STOPPED) || WEXITSTATUS(status) != 0) {
		snprintf(text, sizeof(text), "left with status %d", WEXITSTATUS(status));
		blame(b, rank, l, l->rule, text);
	}
}

/* A call that did not return in a tenth of a second, after the whole time of the
 * case, is where a rank hangs; else it polls in vain. */
static void blame_hung_rank(struct board *b, int rank, const unsigned long *before, double timeout)
{
	const struct place *p = &b->place[rank];
	char text[80];

	snprintf(text, sizeof(text), "hung for %.0f s", timeout);
	for (int i = 0; i < MAX_THREADS; i++)
		if (p->lanes[i].open && p->lanes[i].begun == before[i]) {
			blame(b, rank, &p->lanes[i], p->lanes[i].rule, text);
			return;
		}
	snprintf(text, sizeof(text), "polled in vain, %.0f s are over,", timeout);
	for (int i = MAX_THREADS - 1; i >= 0; i--)
		if (i == 0 || p->lanes[i].begun != before[i]) {
			const struct lane *l = &p->lanes[i];

			blame(b, rank, l, l->polling != RULES ? l->polling : l->rule, text);
			return;
		}
}

/* Blames a rank for the hang, unless it waits for another one. If all ranks that
 * are still there wait, all are to blame. */
static void blame_hung(struct board *b, const bool *gone, int ranks, double timeout)
{
	unsigned long before[MAX_RANKS][MAX_THREADS];
	int busy = 0;

	for (int i = 0; i < ranks; i++) {
		busy += !gone[i] && !atomic_load(&b->place[i].waiting);
		for (int t = 0; t < MAX_THREADS; t++)
			before[i][t] = b->place[i].lanes[t].begun;
	}
	usleep(100000);
	for (int i = 0; i < ranks; i++)
		if (!gone[i] && (busy == 0 || !atomic_load(&b->place[i].waiting)))
			blame_hung_rank(b, i, before[i], timeout);
}

/* Looks after the ranks every so many microseconds. */
static void watch(struct board *b, const pid_t *pids, int ranks, double timeout, useconds_t pause)
{
	bool gone[MAX_RANKS] = { false }, killed[MAX_RANKS] = { false };
	double deadline = now() + timeout;
	bool stopping = false;		/* one has failed, the others end by themselves */
	int alive = ranks;

	while (alive > 0) {
		bool late = now() > deadline;

		if (late && !stopping)
			blame_hung(b, gone, ranks, timeout);
		for (int i = 0; i < ranks; i++) {
			int status;

			if (!gone[i] && waitpid(pids[i], &status, WNOHANG) == pids[i]) {
				gone[i] = true;
				alive--;
				judge(b, i, status, killed[i]);
			} else if (!gone[i] && late && !killed[i]) {
				killed[i] = true;
				kill(pids[i], SIGKILL);
			}
		}
		if (!stopping && atomic_load(&b->stop)) {
			stopping = true;
			deadline = now() + grace;
		}
		usleep(pause);
	}
	for (int i = 0; i < ranks; i++)
		kill(-pids[i], SIGKILL);	/* also processes that the plugin may have forked */
}

static void read_output(struct outcome *out, int fd)
{
	off_t end = lseek(fd, 0, SEEK_END);
	off_t from = end > (off_t)sizeof(out->output) - 1 ? end - (off_t)sizeof(out->output) + 1 : 0;
	ssize_t n = pread(fd, out->output, sizeof(out->output) - 1, from);

	out->output[n > 0 ? n : 0] = 0;
}

static void conclude(struct outcome *out, const struct board *b)
{
	int count = b->failures < FAILURES ? b->failures : FAILURES;
	int must = 0;

	/* Ends of processes come first: they explain the failures of the other ranks. */
	for (int ended = 1; ended >= 0; ended--)
		for (int i = 0; i < count; i++)
			if (b->failure[i].ended == (ended == 1))
				out->failures[out->nfailures++] = b->failure[i];
	memcpy(out->note, b->declined && out->nfailures == 0 ? b->declined_text : b->note, sizeof(out->note));
	for (int i = 0; i < out->nfailures; i++) {
		must += rules[out->failures[i].rule].level == MUST;
		out->checked[out->failures[i].rule] = 1;
	}
	if (out->nfailures == 0 || out->failures[0].rank >= 0)
		memcpy(out->warning, b->place[out->nfailures ? out->failures[0].rank : 0].warning, sizeof(out->warning));
	out->result = must > 0 ? FAILED_CASE : out->nfailures > 0 ? ADVICE : b->declined ? NOT_OFFERED : PASSED;
	/* A case that ended early may not have come to the checks of a rule. */
	for (int i = 0; i < RULES; i++)
		out->checked[i] |= b->checked[i] && (out->result == PASSED || out->result == ADVICE);
}

void run_case(struct outcome *out, const struct options *o, const char *plugin,
	const struct test *test, int abi, int ranks, void *area)
{
	struct board *b = mmap(NULL, sizeof(*b), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int output = o->verbose ? -1 : memfd_create("output", 0);
	pid_t pids[MAX_RANKS];
	double start = now();
	int started = 0;

	memset(out, 0, sizeof(*out));
	out->test = test;
	out->abi = abi;
	out->ranks = ranks;
	if (b == MAP_FAILED) {
		perror("nccl-net-conformance: shared memory");
		exit(2);
	}
	fflush(NULL);
	for (int i = 0; i < ranks; i++, started++) {
		struct rank r = {
			.rank = i, .ranks = ranks, .seed = o->seed, .timeout = o->timeout, .dev = o->dev,
			.options = o, .board = b, .plugin = plugin, .area = area,
		};

		pids[i] = fork();
		if (pids[i] == 0)
			rank_main(&r, test, abi, output);
		if (pids[i] < 0) {
			board_fail(b, test->rule, -1, true, "no process for a rank");
			atomic_store(&b->stop, 1);
			break;
		}
	}
	/* A measured process may have no core to spare; bare TCP's parent does not look at all. */
	watch(b, pids, started, o->timeout, o->perf ? 20000 : 500);
	out->seconds = now() - start;
	conclude(out, b);
	if (output >= 0) {
		if (out->result == FAILED_CASE)
			read_output(out, output);
		close(output);
	}
	munmap(b, sizeof(*b));
}
