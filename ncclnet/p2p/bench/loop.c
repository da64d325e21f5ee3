#include <errno.h>
#include <sched.h>
#include <sys/socket.h>

#include "loop.h"
#include "p2p.h"

/* count messages, window of them in flight, each slot of the window in memory of
 * its own. */
static int run(struct p2p_comm *c, int sending, char *data, size_t size, int count, int window)
{
	struct p2p_request *r[P2P_IN_FLIGHT];
	int posted = 0, finished = 0, done;

	while (finished < count) {
		while (posted < count && posted - finished < window) {
			char *at = data + size * (size_t)(posted % window);
			struct p2p_request **slot = &r[posted % window];

			if (sending ? p2p_isend(c, at, size, 0, 0, NULL, slot) : p2p_irecv(c, at, size, 0, 0, NULL, slot))
				return -1;
			if (*slot == NULL)
				break;
			posted++;
		}
		if (p2p_test(r[finished % window], &done, NULL))
			return -1;
		if (done)
			finished++;
		else
			sched_yield();
	}
	return 0;
}

int bench_send(struct p2p_comm *c, char *data, size_t size, int count, int window)
{
	return run(c, 1, data, size, count, window);
}

int bench_recv(struct p2p_comm *c, char *data, size_t size, int count, int window)
{
	return run(c, 0, data, size, count, window);
}

static int bare(int sending, const int *fds, int lanes, char *data, size_t size, int count, int window)
{
	size_t part = size / (size_t)lanes, last = size - part * (size_t)(lanes - 1);
	size_t moved[P2P_LANES] = {0}, total = 0, len, slot, off;
	int i, some;
	ssize_t n;

	while (total < size * (size_t)count) {
		some = 0;
		for (i = 0; i < lanes; i++) {
			len = i == lanes - 1 ? last : part;
			if (len == 0 || moved[i] >= len * (size_t)count)
				continue;
			slot = moved[i] / len % (size_t)window;
			off = moved[i] % len;
			n = sending ? send(fds[i], data + slot * size + part * (size_t)i + off, len - off, MSG_DONTWAIT | MSG_NOSIGNAL)
				    : recv(fds[i], data + slot * size + part * (size_t)i + off, len - off, MSG_DONTWAIT);
			if (n > 0) {
				moved[i] += (size_t)n;
				total += (size_t)n;
				some = 1;
			} else if (n == 0 || errno != EAGAIN) {
				return -1;
			}
		}
		if (!some)
			sched_yield();
	}
	return 0;
}

int bare_send(const int *fds, int lanes, char *data, size_t size, int count, int window)
{
	return bare(1, fds, lanes, data, size, count, window);
}

int bare_recv(const int *fds, int lanes, char *data, size_t size, int count, int window)
{
	return bare(0, fds, lanes, data, size, count, window);
}
