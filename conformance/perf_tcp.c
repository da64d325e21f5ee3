/* The yardstick: two processes, TCP on loopback, no plugin. Non-blocking sockets
 * are polled in a loop that yields when nothing moved, as NCCL polls a plugin.
 * Messages below LARGE take one stream; of larger ones the best of one, two and
 * four streams counts. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "perf.h"

enum { STREAMS = 4, LARGE = 256 << 10, WARM_UP = 3 };

struct end {
	int fds[STREAMS];
	int streams;			/* in use */
	bool sender;			/* of the two, the one that begins */
	char *data;
};

/* Messages of one size going one way: each stream carries its own part of each,
 * and does not wait for the others. */
struct transfer {
	size_t first[STREAMS], size[STREAMS];	/* of its part */
	size_t at[STREAMS], left[STREAMS];	/* in the part; of all its messages */
	size_t slot[STREAMS], slots, bytes;	/* messages take turns in as much memory as a plugin's */
	bool out;
};

static struct transfer transfer(const struct end *e, size_t bytes, int times, bool out)
{
	struct transfer t = { .out = out, .bytes = bytes, .slots = bytes * PERF_IN_FLIGHT <= PERF_POOL ? PERF_IN_FLIGHT : 1 };
	size_t part = bytes / (size_t)e->streams;

	for (int i = 0; i < e->streams; i++) {
		t.first[i] = part * (size_t)i;
		t.size[i] = i == e->streams - 1 ? bytes - t.first[i] : part;
		t.left[i] = t.size[i] * (size_t)times;
	}
	return t;
}

/* What moves now; -1 when the other side is gone. left is what remains. */
static int move(struct end *e, struct transfer *t, bool *busy, size_t *left)
{
	*left = 0;
	for (int i = 0; i < e->streams; i++) {
		char *data = e->data + t->slot[i] * t->bytes + t->first[i] + t->at[i];
		size_t n = t->size[i] - t->at[i];
		ssize_t moved;

		if (t->left[i] == 0)
			continue;
		moved = t->out ? send(e->fds[i], data, n, MSG_NOSIGNAL) : recv(e->fds[i], data, n, 0);
		if (moved == 0 || (moved < 0 && errno != EAGAIN && errno != EINTR))
			return -1;
		if (moved > 0) {
			t->at[i] = (t->at[i] + (size_t)moved) % t->size[i];
			t->slot[i] = (t->slot[i] + (t->at[i] == 0)) % t->slots;
			t->left[i] -= (size_t)moved;
			*busy = true;
		}
		*left += t->left[i];
	}
	return 0;
}

static void messages(struct end *e, size_t bytes, int times, bool out)
{
	struct transfer t = transfer(e, bytes, times, out);
	size_t left;

	do {
		bool busy = false;

		if (move(e, &t, &busy, &left) != 0)
			_exit(1);
		if (!busy)
			sched_yield();
	} while (left > 0);
}

static void ping_pong(struct end *e, size_t bytes, int times)
{
	for (int i = 0; i < times; i++) {
		messages(e, bytes, 1, e->sender);
		messages(e, bytes, 1, !e->sender);
	}
}

static void stream(struct end *e, size_t bytes, int times)
{
	messages(e, bytes, times, e->sender);
	messages(e, 1, 1, !e->sender);
}

static double timed(struct end *e, void (*run)(struct end *e, size_t bytes, int times), size_t bytes, int times)
{
	double start, best = 0, each;

	for (e->streams = 1; e->streams <= (bytes >= LARGE ? STREAMS : 1); e->streams *= 2) {
		run(e, bytes, WARM_UP);
		ping_pong(e, 1, 1);
		start = now();
		run(e, bytes, times);
		each = (now() - start) / times * 1e6;
		best = best == 0 || each < best ? each : best;
	}
	return best;
}

static void run(struct end *e, struct perf_round *round)
{
	for (int i = 0; i < PERF_SIZES; i++) {
		int times = perf_repeats(perf_sizes[i]);
		double half = timed(e, ping_pong, perf_sizes[i], times) / 2;
		double each = timed(e, stream, perf_sizes[i], times);

		if (e->sender) {
			round->us[LATENCY][i] = half;
			round->us[BANDWIDTH][i] = each;
		}
	}
}

static int both_ends(struct end *a, struct end *b)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof(address);
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	if (l < 0 || bind(l, (struct sockaddr *)&address, size) || listen(l, STREAMS) ||
	    getsockname(l, (struct sockaddr *)&address, &size))
		return -1;
	for (int i = 0; i < STREAMS; i++) {
		a->fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (a->fds[i] < 0 || connect(a->fds[i], (struct sockaddr *)&address, size))
			return -1;
		b->fds[i] = accept4(l, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (b->fds[i] < 0 || fcntl(a->fds[i], F_SETFL, O_NONBLOCK))
			return -1;
		setsockopt(a->fds[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		setsockopt(b->fds[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	}
	close(l);
	return 0;
}

static pid_t start(struct end *e, struct end *other, struct perf_round *round, double timeout)
{
	pid_t child;

	fflush(NULL);
	child = fork();
	if (child != 0)
		return child;
	alarm((unsigned)timeout + 1);
	for (int i = 0; i < STREAMS; i++)
		close(other->fds[i]);
	e->data = malloc(PERF_POOL);
	if (!e->data)
		_exit(1);
	memset(e->data, 0x5a, PERF_POOL);
	run(e, round);
	_exit(0);
}

int perf_tcp(struct perf_round *round, double timeout)
{
	struct end a = { .sender = true }, b = { .sender = false };
	pid_t children[2];
	int status, rc = 0;

	if (both_ends(&a, &b) != 0)
		return -1;
	children[0] = start(&a, &b, round, timeout);
	children[1] = start(&b, &a, round, timeout);
	for (int i = 0; i < STREAMS; i++) {
		close(a.fds[i]);
		close(b.fds[i]);
	}
	for (int i = 0; i < 2; i++)
		if (children[i] < 0 || waitpid(children[i], &status, 0) < 0 || status != 0)
			rc = -1;
	return rc;
}
