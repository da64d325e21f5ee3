/* Ranks among themselves: barriers, exchange, flags, threads, and the log of
 * their calls. Waiting is polling: ranks may be killed at any time. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "board.h"
#include "cli.h"

struct rank *self;
_Thread_local struct lane *lane;

double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void stop_if_told(struct rank *r)
{
	if (!atomic_load(&r->board->stop))
		return;
	atomic_store(&r->board->place[r->rank].state, STOPPED);
	_exit(0);
}

void breathe(struct rank *r, bool busy)
{
	stop_if_told(r);
	if (!busy)
		sched_yield();
}

void barrier(struct rank *r)
{
	struct board *b = r->board;
	uint64_t mine = atomic_fetch_add(&b->place[r->rank].arrived, 1) + 1;

	atomic_store(&b->place[r->rank].waiting, true);
	for (int i = 0; i < r->ranks; i++) {
		struct place *p = &b->place[i];

		while (atomic_load(&p->arrived) < mine && atomic_load(&p->state) != DYING) {
			stop_if_told(r);
			usleep(50);
		}
	}
	atomic_store(&b->place[r->rank].waiting, false);
}

void exchange(struct rank *r, const void *mine, void *all, size_t bytes)
{
	barrier(r);
	memcpy(r->board->place[r->rank].exchange, mine, bytes);
	barrier(r);
	for (int i = 0; i < r->ranks; i++)
		memcpy((char *)all + (size_t)i * bytes, r->board->place[i].exchange, bytes);
	barrier(r);
}

void flag_raise(struct rank *r, int flag, uint64_t value)
{
	atomic_store(&r->board->place[0].flags[flag], value);
}

uint64_t flag_read(struct rank *r, int flag)
{
	return atomic_load(&r->board->place[0].flags[flag]);
}

void flag_wait(struct rank *r, int flag, uint64_t at_least)
{
	atomic_store(&r->board->place[r->rank].waiting, true);
	while (flag_read(r, flag) < at_least) {
		stop_if_told(r);
		usleep(50);
	}
	atomic_store(&r->board->place[r->rank].waiting, false);
}

void die(struct rank *r)
{
	atomic_store(&r->board->place[r->rank].state, DYING);
	raise(SIGKILL);
	for (;;)
		pause();
}

/* Threads */

static struct thread {
	pthread_t id;
	bool running;
	struct rank *rank;
	enum rule rule;
	int index;
	void (*run)(struct rank *r, void *arg);
	void *arg;
} threads[MAX_THREADS];

static void *thread_run(void *arg)
{
	struct thread *t = arg;

	lane = &t->rank->board->place[t->rank->rank].lanes[t->index];
	lane->polling = RULES;
	under(t->rule);
	t->run(t->rank, t->arg);
	return NULL;
}

void thread_start(struct rank *r, int index, void (*run)(struct rank *r, void *arg), void *arg)
{
	struct thread *t = &threads[index];

	*t = (struct thread){ .rank = r, .rule = lane->rule, .index = index, .run = run, .arg = arg };
	t->running = pthread_create(&t->id, NULL, thread_run, t) == 0;
	EXPECT(t->running, "expected a thread, got none from the system");
}

void thread_join_all(struct rank *r)
{
	(void)r;
	for (int i = 0; i < MAX_THREADS; i++)
		if (threads[i].running) {
			pthread_join(threads[i].id, NULL);
			threads[i].running = false;
		}
}

/* Calls */

/* A call that repeats is counted, so that a polling rank does not push its
 * earlier calls out of the log. */
void call_begin(const char *fmt, unsigned long a, unsigned long b, unsigned long c)
{
	struct call *newest = &lane->calls[(lane->count - 1) % LANE_CALLS];

	if (lane->count == 0 || newest->fmt != fmt || newest->arg[0] != a ||
	    newest->arg[1] != b || newest->arg[2] != c) {
		newest = &lane->calls[lane->count++ % LANE_CALLS];
		*newest = (struct call){ .fmt = fmt, .arg = { a, b, c } };
	}
	newest->times++;
	lane->begun++;
	lane->open = true;
}

int call_end(int result)
{
	lane->calls[(lane->count - 1) % LANE_CALLS].result = result;
	lane->open = false;
	return result;
}

/* Comes from any thread of the plugin, so it uses nothing of the lane. */
void plugin_log(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
	char text[TEXT_BYTES];
	va_list args;

	(void)flags;
	if (level > ABI_LOG_INFO && !self->options->verbose)
		return;
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	if (level == ABI_LOG_WARN)
		memcpy(self->board->place[self->rank].warning, text, sizeof(text));
	if (self->options->verbose)
		fprintf(stderr, "#   rank %d, plugin, %s:%d: %s\n", self->rank, file ? file : "?", line, text);
}
