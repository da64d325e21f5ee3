/* SIGUSR2 writes the trace of this process. A handler that was there before stays: it is called as before. */
#include "usr2.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "fork.h"

static int wanted; /* an eventfd that a goroutine reads */
static struct sigaction before;

/* Calls only functions that a signal handler may call. */
static void on_signal(int number, siginfo_t *info, void *context)
{
	const uint64_t one = 1;
	int saved = errno;

	if (!mcast_forked() && write(wanted, &one, sizeof(one)) < 0)
		; /* it is full: a trace is wanted already */
	if (before.sa_flags & SA_SIGINFO)
		before.sa_sigaction(number, info, context);
	else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
		before.sa_handler(number);
	else if (before.sa_handler == SIG_DFL && mcast_forked()) {
		/* A fork of this process has no trace: it ends, as it would without us. */
		signal(number, SIG_DFL);
		raise(number);
	}
	errno = saved;
}

int mcast_watch_signal(int fd)
{
	struct sigaction ours;

	if (sigaction(SIGUSR2, NULL, &before) != 0)
		return errno;
	wanted = fd;
	memset(&ours, 0, sizeof(ours));
	ours.sa_sigaction = on_signal;
	ours.sa_mask = before.sa_mask;
	/* The other handler interrupts the same system calls as before: Python's does so, to run its own part soon. */
	ours.sa_flags = before.sa_handler == SIG_DFL ||
		before.sa_handler == SIG_IGN ? SA_RESTART : before.sa_flags & (SA_RESTART | SA_NODEFER);
	ours.sa_flags |= SA_SIGINFO | SA_ONSTACK; /* threads of Go have small stacks */
	return sigaction(SIGUSR2, &ours, NULL) == 0 ? 0 : errno;
}
