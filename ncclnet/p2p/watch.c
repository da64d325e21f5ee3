/* Looks at connections that send, whether or not their owner does. Bytes count as sent once the kernel has
 * taken them, so an owner who only receives from then on would never learn that they do not arrive, and
 * neither would its peer, who waits for them. A closed connection is looked at until all its bytes have
 * arrived. */
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <linux/sockios.h>
#include <linux/tcp.h> /* tcpi_segs_in, which the libc lacks */

#include "comm.h"

enum {
	TRIES = 2,           /* in vain, before a silent peer may be gone: one may be on its way */
	LONGEST_PAUSE = 500, /* ms between two looks */
	CLOSED = 7,          /* TCP_CLOSE of <netinet/tcp.h>, which does not go with <linux/tcp.h> */
	SPARE = 1000         /* ms that the kernel has beyond the watch, which says what it does */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct p2p_comm *first; /* of those that are watched */

/* The time in which this process ran while it watched, in ms: of the time that passes
 * between two looks, twice the pause counts at most. So the time does not count in which the
 * process was stopped or got no core, or its machine paused. */
static struct {
	uint64_t ran, looked;
	unsigned pause; /* until the next look */
} own;

static void pass(void)
{
	struct timespec t;
	uint64_t now, most = 2 * (uint64_t)own.pause;

	clock_gettime(CLOCK_MONOTONIC, &t);
	now = (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
	if (own.looked > 0)
		own.ran += now - own.looked < most ? now - own.looked : most;
	own.looked = now;
}

static int look(struct lane *l, struct tcp_info *info)
{
	socklen_t size = sizeof(*info);

	memset(info, 0, sizeof(*info)); /* older kernels fill less */
	return getsockopt(l->fd, IPPROTO_TCP, TCP_INFO, info, &size) == 0;
}

/* Whether bytes are sent again though the peer has room for them. Kernels before
 * 5.4 do not tell the room and leave it 0: there this is never so. */
static int repeated(const struct tcp_info *info)
{
	return info->tcpi_unacked > 0 && info->tcpi_retransmits > 0 && info->tcpi_snd_wnd >= info->tcpi_snd_mss;
}

/* Whether the peer has answered nothing for longer than the timeout, counting only time
 * in which this process ran. Keepalive does not look while bytes are unacknowledged.
 * TCP_USER_TIMEOUT does, but it also ends a connection to a peer that is well and just
 * receives nothing for a while. Such a peer answers every try, however rare they become,
 * so only tries since its last segment count. */
static int silent(struct lane *l, const struct tcp_info *info, unsigned timeout)
{
	if (l->heard != info->tcpi_segs_in) {
		l->heard = info->tcpi_segs_in;
		l->retried = info->tcpi_total_retrans;
		l->answered = own.ran;
	}
	return info->tcpi_total_retrans - l->retried + info->tcpi_probes >= TRIES && info->tcpi_last_ack_recv >= timeout &&
	       own.ran - l->answered >= timeout;
}

/* Whether resent bytes have gone without any acknowledgement for longer than the
 * timeout, though the peer's keepalives may arrive: the path does not carry
 * segments of this size. */
static int stalled(struct lane *l, const struct tcp_info *info, unsigned timeout)
{
	if (!repeated(info) || l->acked != info->tcpi_bytes_acked) {
		l->since = own.ran;
		l->acked = info->tcpi_bytes_acked;
	}
	return own.ran - l->since >= timeout;
}

/* Bytes that a closed connection sends again in vain also keep its end from the
 * peer. Should this process end, the kernel gives up after the timeout instead of
 * minutes, and answers the peer's keepalive by a reset. Not while the peer has no
 * room: it may just be late. */
static void bound_retries(struct lane *l, const struct tcp_info *info, unsigned timeout)
{
	const unsigned limit = repeated(info) ? timeout + SPARE : 0;

	(void)setsockopt(l->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit, sizeof(limit));
}

/* The largest segments of a connection on which nothing is acknowledged, else 0. */
static unsigned unanswered(struct lane *l, unsigned timeout)
{
	struct tcp_info info;

	if (!look(l, &info))
		return 0;
	if (l->comm->closed)
		bound_retries(l, &info, timeout);
	if (!silent(l, &info, timeout) && !stalled(l, &info, timeout))
		return 0;
	return info.tcpi_snd_mss;
}

/* Whether data are still on their way. The end of the connection counts as a byte,
 * and passes any path; bytes that a reset has dropped count as unsent for good. */
static int unsent(struct lane *l)
{
	struct tcp_info info;
	int bytes;

	return look(l, &info) && info.tcpi_state != CLOSED && ioctl(l->fd, SIOCOUTQ, &bytes) == 0 && bytes > 1;
}

/* Closes the lanes of a closed comm on which all has arrived, or all of them.
 * Returns whether none is left. */
static int finish(struct p2p_comm *c, int all)
{
	int i, left = 0;

	for (i = 0; i < c->lanes; i++) {
		if (c->lane[i].fd < 0)
			continue;
		if (!all && unsent(&c->lane[i])) {
			left = 1;
			continue;
		}
		(void)close(c->lane[i].fd);
		c->lane[i].fd = -1;
	}
	return !left;
}

static void drop(struct p2p_comm *c)
{
	struct p2p_comm **at;

	for (at = &first; *at != c; at = &(*at)->next)
		;
	*at = c->next;
}

/* Frees a closed comm if all has arrived, or in any case. */
static void reap(struct p2p_comm *c, int all)
{
	if (!c->closed || !finish(c, all))
		return;
	drop(c);
	free(c);
}

/* Descriptors are not kept until the next look where connections come and go. */
static void reap_all(void)
{
	struct p2p_comm *c, *next;

	for (c = first; c != NULL; c = next) {
		next = c->next;
		reap(c, 0);
	}
}

void p2p_watch_add(struct p2p_comm *c)
{
	int i;

	if (!c->sending || c->lane[0].ring != NULL || c->verbs != NULL || c->timeout == 0)
		return;
	pthread_mutex_lock(&lock);
	reap_all();
	for (i = 0; i < c->lanes; i++)
		c->lane[i].since = c->lane[i].answered = own.ran;
	c->watched = 1;
	c->next = first;
	first = c;
	pthread_mutex_unlock(&lock);
}

int p2p_watch_close(struct p2p_comm *c)
{
	struct tcp_info info;
	int aborted[P2P_LANES];
	int i, done;

	/* May take a moment, so without the lock. The watch may look at these meanwhile, and closes nothing. */
	for (i = 0; i < c->lanes; i++) {
		aborted[i] = c->lane[i].pinned != c->lane[i].released;
		if (aborted[i])
			p2p_socket_abort(&c->lane[i]);
	}
	pthread_mutex_lock(&lock);
	reap_all();
	for (i = 0; i < c->lanes; i++) {
		if (aborted[i]) {
			(void)close(c->lane[i].fd);
			c->lane[i].fd = -1;
		} else { /* the peer hears of it even if a forked child still has the socket */
			(void)shutdown(c->lane[i].fd, SHUT_RDWR);
		}
	}
	done = finish(c, !c->watched || c->unanswered);
	if (done && c->watched)
		drop(c);
	c->closed = 1;
	for (i = 0; i < c->lanes; i++)
		if (c->lane[i].fd >= 0 && look(&c->lane[i], &info))
			bound_retries(&c->lane[i], &info, c->timeout);
	pthread_mutex_unlock(&lock);
	return done;
}

/* Gives up a connection. Its owner's next call fails. The peer is told
 * now: a reset fits any path, while an orderly end would wait behind the bytes that
 * do not arrive. */
static void give_up(struct p2p_comm *c, unsigned segment)
{
	int i;

	__atomic_store_n(&c->unanswered, segment, __ATOMIC_RELEASE);
	for (i = 0; i < c->lanes; i++)
		if (c->lane[i].fd >= 0 && !p2p_socket_reset(&c->lane[i]))
			(void)shutdown(c->lane[i].fd, SHUT_RDWR);
}

unsigned p2p_watch(char *lost, size_t size)
{
	struct p2p_comm *c, *next;
	unsigned pause = 0, soon, segment;
	int i;

	*lost = 0;
	pthread_mutex_lock(&lock);
	pass();
	for (c = first; c != NULL && *lost == 0; c = next) {
		next = c->next;
		soon = c->timeout / 8 < LONGEST_PAUSE ? c->timeout / 8 + 1 : LONGEST_PAUSE;
		pause = pause == 0 || soon < pause ? soon : pause;
		for (i = 0, segment = 0; i < c->lanes && segment == 0 && !c->unanswered; i++)
			if (c->lane[i].fd >= 0)
				segment = unanswered(&c->lane[i], c->timeout);
		if (segment > 0) {
			give_up(c, segment);
			snprintf(lost, size, "send to %s: " P2P_UNANSWERED, c->peer, c->timeout, segment);
			pause = 1; /* there may be more */
		}
		reap(c, segment > 0);
	}
	own.pause = pause;
	pthread_mutex_unlock(&lock);
	return pause;
}
