#include "fork.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "mcast.h"

int mcast_fork_child;
static long loader; /* process that loaded the library */

static void in_child(void) { mcast_fork_child = 1; }

/* Neither vfork() nor posix_spawn() runs the handler: their child shares the
 * parent's memory until it executes a program, and must not mark the parent. */
__attribute__((constructor)) static void watch_forks(void)
{
	loader = getpid();
	pthread_atfork(NULL, NULL, in_child);
}

int mcast_forked_text(char *err, size_t errlen)
{
	if (err != NULL && errlen > 0)
		snprintf(err, errlen,
			"this process (%ld) is a fork of the one that loaded the library (%ld), and the "
			"library does not survive a fork: fork before it is loaded, or start the process "
			"with exec or spawn", (long)getpid(), loader);
	return MCAST_E_UNAVAILABLE;
}
