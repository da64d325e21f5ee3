/* A child of fork() has none of the threads that the library runs on: a call
 * into Go would wait for them for ever. Every function that a host can call
 * asks mcast_forked() first. */
#ifndef MCAST_FORK_H
#define MCAST_FORK_H

#include <stddef.h>

extern __attribute__((visibility("hidden"))) int mcast_fork_child;

/* mcast_forked: 1 in a process that came from the one that loaded the library
 * by fork(), else 0. Costs a load. */
static inline int mcast_forked(void)
{
	return __builtin_expect(mcast_fork_child, 0);
}

/* mcast_forked_text writes to err (errlen bytes, may be NULL) why a fork may not
 * call, and returns MCAST_E_UNAVAILABLE. */
__attribute__((visibility("hidden"))) int mcast_forked_text(char *err, size_t errlen);

/* mcast_close_in_child has children of fork() close a socket that is open now:
 * while one of them holds it, the end of this process would not close it, and
 * peers would not learn that this process has died. */
__attribute__((visibility("hidden"))) void mcast_close_in_child(int fd);

#endif
