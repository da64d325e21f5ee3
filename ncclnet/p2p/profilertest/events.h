#ifndef EVENTS_H
#define EVENTS_H

#include "abi.h"
#include "mcast.h"

struct message_event {
	void *parent;
	int stops;
	uint64_t began, ended; /* of CLOCK_MONOTONIC, ns */
	struct mcast_net_event start, end;
};

nccl_profiler profiler_begin(void); /* forgets earlier events */
int profiler_count(void);
int profiler_wrong(void);
const struct message_event *profiler_at(int i);
uint64_t profiler_clock(void);

#endif
