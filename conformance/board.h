/* The memory that the ranks of one case and the runner share. */
#ifndef BOARD_H
#define BOARD_H

#include <stdatomic.h>

#include "harness.h"

enum { LANE_CALLS = 8, FAILURES = 16, TEXT_BYTES = 400 };

/* A call of the plugin: a format with up to three unsigned longs. Formats are
 * literals, so they mean the same on both sides of a fork. */
struct call {
	const char *fmt;
	unsigned long arg[3];
	unsigned long times;
	int result;
};

/* What one thread of a rank is doing. */
struct lane {
	enum rule rule;
	enum rule polling;		/* RULES: rule */
	bool open;			/* inside the newest call */
	volatile unsigned long begun;	/* calls in all */
	unsigned long count;		/* of different calls; the newest is at (count - 1) % LANE_CALLS */
	struct call calls[LANE_CALLS];
};

struct failure {
	enum rule rule;
	int rank;			/* -1: of the runner */
	bool ended;			/* the process crashed, hung or left */
	char text[TEXT_BYTES];
};

enum state { RUNNING, FINISHED, FAILED, STOPPED, DYING };

struct place {
	_Atomic int state;		/* enum state */
	_Atomic uint64_t arrived;	/* barriers */
	_Atomic bool waiting;		/* for another rank, outside the plugin */
	_Atomic uint64_t flags[FLAGS];
	unsigned char exchange[EXCHANGE_BYTES];
	struct lane lanes[MAX_THREADS];
	char warning[TEXT_BYTES];	/* the plugin's last */
};

struct board {
	_Atomic int stop;
	_Atomic int failures;
	_Atomic int declined;
	struct failure failure[FAILURES];
	_Atomic unsigned char checked[RULES];
	char declined_text[TEXT_BYTES];
	char note[TEXT_BYTES];
	struct place place[MAX_RANKS];
};

/* Of this process and thread. */
extern struct rank *self;
extern _Thread_local struct lane *lane;

void board_fail(struct board *b, enum rule rule, int rank, bool ended, const char *text);

void call_begin(const char *fmt, unsigned long a, unsigned long b, unsigned long c);
int call_end(int result);
/* Logs expr as a call; args fit fmt, three of them. */
#define CALL(expr, fmt, a, b, c) \
	(call_begin(fmt, (unsigned long)(a), (unsigned long)(b), (unsigned long)(c)), call_end(expr))

/* The logger that plugins get. */
abi_log plugin_log;

#endif
