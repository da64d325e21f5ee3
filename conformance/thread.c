/* Threads of a rank. */
#include <pthread.h>

#include "board.h"

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
