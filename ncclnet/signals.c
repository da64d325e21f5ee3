/* Loading a Go library installs Go's handlers for SIGSEGV, SIGBUS, SIGFPE,
 * SIGPIPE and SIGURG (os/signal: "Non-Go programs that call Go code"). The first
 * three turn a fault in Go code into an error and pass any other on to the
 * handler that was there, or to the default. The other two would change what a
 * host relies on:
 *
 * SIGPIPE, where it was ignored, as in Python: exec would hand on the default
 * instead of the ignored signal. Go needs no handler then, its writes return
 * EPIPE. Where it was not ignored Go's handler stays: it keeps our own writes to
 * a lost peer from ending the process, and passes on all others.
 *
 * SIGURG, where the host had a handler or ignored it: Go, which uses the signal
 * to preempt goroutines, does not pass it on. Goroutines are preempted where
 * they call functions even so.
 *
 * The dispositions are put back before dlopen returns, so that no thread of the
 * host can set one in between and lose it. Go installs its handlers in a
 * constructor without a priority: one with a priority runs before it, and one
 * without, linked after Go's, behind it. */
#include <signal.h>
#include <stddef.h>

static struct sigaction pipe_before, urg_before;

static int is(const struct sigaction *action, void (*handler)(int))
{
	return !(action->sa_flags & SA_SIGINFO) && action->sa_handler == handler;
}

__attribute__((constructor(101))) static void remember(void)
{
	sigaction(SIGPIPE, NULL, &pipe_before);
	sigaction(SIGURG, NULL, &urg_before);
}

__attribute__((constructor)) static void put_back(void)
{
	if (is(&pipe_before, SIG_IGN))
		sigaction(SIGPIPE, &pipe_before, NULL);
	if (!is(&urg_before, SIG_DFL)) {
		urg_before.sa_flags |= SA_ONSTACK; /* it may arrive on one of Go's small stacks */
		sigaction(SIGURG, &urg_before, NULL);
	}
}
