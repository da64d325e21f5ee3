/* Ranks among themselves: barriers, exchange, flags, and the log of their calls. Waiting is polling: ranks may
 * be killed at any time. */
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

/* A call that repeats is counted, so that a polling rank does not push its
 * earlier calls out of the log. */
void call_begin(const char *fmt, unsigned long a, unsigned long b, unsigned long c)
{
	struct call *last = &lane->calls[(lane->count - 1) % LANE_CALLS];

	if (lane->count == 0 || last->fmt != fmt || last->arg[0] != a ||
	    last->arg[1] != b || last->arg[2] != c) {
		last = &lane->calls[lane->count++ % LANE_CALLS];
		*last = (struct call){ .fmt = fmt, .arg = { a, b, c } };
	}
	last->times++;
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
