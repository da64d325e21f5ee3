#include <time.h>

#include "told.h"

/* Tests tell from one thread. */
enum { MOST = 4096 };
static struct told told[MOST];
static int count, wrong;

uint64_t told_clock(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static nccl_result tell(void **event, int type, void *parent, int64_t id, void *data)
{
	struct told *e = *event;

	if (id != MCAST_NET_EVENT_ID || data == NULL || count == MOST || (e != NULL && (e < told || e >= told + count))) {
		wrong++;
		return NCCL_SUCCESS;
	}
	if (type == NCCL_NET_EVENT_START && e == NULL && parent != NULL) {
		e = &told[count++];
		*e = (struct told){.parent = parent, .began = told_clock(), .start = *(struct mcast_net_event *)data};
		*event = e;
	} else if (type == NCCL_NET_EVENT_UPDATE_AND_STOP && e != NULL) {
		e->end = *(struct mcast_net_event *)data;
		e->stops++;
		e->ended = told_clock();
	} else {
		wrong++;
	}
	return NCCL_INTERNAL_ERROR; /* which changes nothing for the message */
}

nccl_profiler told_profiler(void)
{
	count = wrong = 0;
	return tell;
}

int told_count(void) { return count; }
int told_wrong(void) { return wrong; }
const struct told *told_at(int i) { return &told[i]; }
