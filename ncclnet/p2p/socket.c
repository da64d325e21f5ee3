/* Lanes that are TCP sockets. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <linux/errqueue.h> /* needs timespec */
#include "comm.h"

enum {
	PIECE = 1 << 10,  /* bytes of a write that are worth a copy */
	PEEKS = 4,        /* reads in a row whose bytes stay: a sender has a window of 10 segments at first */
	HELD = 256,       /* and how many bytes: from 536 on the kernel acknowledges what arrives */
	WAIT = 16,        /* idle steps after which they are taken: the end of the stream is behind them */
	RUN = 8,          /* small messages in a row after which they count as the rule */
	DRAIN = 100,      /* times 1 ms in which a device is through with what it sends */
};

/* Copies small buffers into one piece: the kernel takes longer over a list. */
static size_t join(char *piece, const struct iovec *iov, int k)
{
	size_t n = 0;
	int i;

	for (i = 0; i < k; i++) {
		if (iov[i].iov_len > PIECE - n)
			return 0;
		memcpy(piece + n, iov[i].iov_base, iov[i].iov_len);
		n += iov[i].iov_len;
	}
	return n;
}

static ssize_t socket_send(struct lane *l, struct iovec *iov, int k, struct p2p_request *pin)
{
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = (size_t)k};
	char piece[PIECE];
	size_t small = join(piece, iov, k);
	int flags = MSG_DONTWAIT | MSG_NOSIGNAL;
	ssize_t n;

	if (pin != NULL && l->pinned - l->released < PINS) {
		n = sendmsg(l->fd, &msg, flags | MSG_ZEROCOPY);
		if (n > 0) {
			l->owner[l->pinned++ % PINS] = pin;
			pin->pending++;
			return n;
		}
		if (n == 0)
			return 0;
		if (errno == EFAULT) /* cannot be pinned, as mappings of devices; a bad address fails below, too */
			l->comm->zerocopy = 0;
		else if (errno != ENOBUFS) /* no room to note the pinning */
			return p2p_nothing();
	}
	n = small > 0 ? send(l->fd, piece, small, flags) : sendmsg(l->fd, &msg, flags);
	return n < 0 ? p2p_nothing() : n;
}

/* What was peeked at; false, with errno, if not now. With MSG_TRUNC nothing is copied. */
static int take_peeked(struct lane *l)
{
	ssize_t n = l->peeked > 0 ? recv(l->fd, l->staged, l->peeked, MSG_DONTWAIT | MSG_TRUNC) : 0;

	if (n < 0)
		return 0;
	l->peeked -= (size_t)n;
	l->peeks = 0;
	errno = EAGAIN;
	return l->peeked == 0;
}

/* When a second small message is taken and nothing is left to read, the kernel sends an
 * acknowledgement before recv returns. That takes a microsecond, in which the receiver waits. So a message
 * is read without taking it, and taken later: with the one that follows, or when there is nothing else
 * to do. */
ssize_t p2p_socket_peek(struct lane *l, struct iovec *iov)
{
	int take = l->peeks >= PEEKS || l->peeked > HELD || (l->peeked > 0 && l->comm->idle >= WAIT);
	ssize_t n = recv(l->fd, iov->iov_base, iov->iov_len, MSG_DONTWAIT | (take ? 0 : MSG_PEEK));
	size_t known;

	if (n < 0)
		return p2p_nothing();
	if (n == 0) {
		errno = ESHUTDOWN;
		return -1;
	}
	known = (size_t)n < l->peeked ? (size_t)n : l->peeked;
	l->peeks = take ? 0 : l->peeks + ((size_t)n > known);
	l->peeked = take ? l->peeked - known : l->peeked + ((size_t)n - known);
	memmove(iov->iov_base, (char *)iov->iov_base + known, (size_t)n - known);
	return n - (ssize_t)known;
}

static ssize_t socket_recv(struct lane *l, struct iovec *iov, int k)
{
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = (size_t)k};
	ssize_t n;

	if (!take_peeked(l))
		return p2p_nothing();
	n = k == 1 ? recv(l->fd, iov->iov_base, iov->iov_len, MSG_DONTWAIT) : recvmsg(l->fd, &msg, MSG_DONTWAIT);

	if (n == 0)
		errno = ESHUTDOWN;
	else if (n < 0)
		return p2p_nothing();
	return n > 0 ? n : -1;
}

const struct stream p2p_socket = {.send = socket_send, .recv = socket_recv};

static int larger(int a, int b)
{
	return a > b ? a : b;
}

int p2p_socket_setup(struct p2p_comm *c)
{
	const int one = 1, bound = c->timeout > 0 ? (int)((c->timeout + 999) / 1000) : 30; /* the kernel counts in seconds */
	const int idle = larger(bound / 3, 1), between = larger(bound / 9, 1),
		tries = larger((bound - idle + between - 1) / between, 2);
	int i, fd;

	for (i = 0; i < c->lanes; i++) {
		fd = c->lane[i].fd;
		/* A host that vanished while nothing was on its way is noticed after the timeout, or three seconds, and not sooner.
		 * */
		if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) < 0 ||
		    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one)) < 0 ||
		    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle)) < 0 ||
		    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &between, sizeof(between)) < 0 ||
		    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &tries, sizeof(tries)) < 0)
			return -1;
		if (c->sealed && c->sending && p2p_seal_begin(&c->lane[i]) < 0)
			return -1;
		if (c->zerocopy && setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof(one)) < 0)
			c->zerocopy = 0; /* a kernel without it: copy */
	}
	return 0;
}

/* Whether the kernel acknowledges each message as it is read. A connection goes
 * one way, so that it does by default, before recv returns: a microsecond. Where
 * messages are small it is set to wait for a second one. After a large message
 * it is not: the sender's memory may be pinned until then. */
void p2p_socket_acknowledge(struct lane *l, size_t size)
{
	const int at_once = 1, later = 0;

	if (size >= LARGE) {
		l->small = 0;
		if (l->delayed_ack)
			(void)setsockopt(l->fd, IPPROTO_TCP, TCP_QUICKACK, &at_once, sizeof(at_once));
		l->delayed_ack = 0;
	} else if (!l->delayed_ack && ++l->small >= RUN) {
		l->delayed_ack = setsockopt(l->fd, IPPROTO_TCP, TCP_QUICKACK, &later, sizeof(later)) == 0;
		l->small = 0;
	}
}

int p2p_socket_release(struct lane *l)
{
	struct p2p_comm *c = l->comm;
	union {
		char bytes[128];
		struct cmsghdr align;
	} control;
	struct msghdr msg;
	struct cmsghdr *m;
	struct sock_extended_err e;
	uint32_t i;
	int some = 0;

	while (l->pinned != l->released) {
		msg = (struct msghdr){.msg_control = &control, .msg_controllen = sizeof(control)};
		if (recvmsg(l->fd, &msg, MSG_ERRQUEUE | MSG_DONTWAIT) < 0)
			break;
		for (m = CMSG_FIRSTHDR(&msg); m != NULL; m = CMSG_NXTHDR(&msg, m)) {
			if (!(m->cmsg_level == SOL_IP && m->cmsg_type == IP_RECVERR) &&
			    !(m->cmsg_level == SOL_IPV6 && m->cmsg_type == IPV6_RECVERR))
				continue;
			memcpy(&e, CMSG_DATA(m), sizeof(e));
			if (e.ee_origin != SO_EE_ORIGIN_ZEROCOPY)
				continue;
			if ((e.ee_code & SO_EE_CODE_ZEROCOPY_COPIED) && c->zerocopy == 2)
				c->zerocopy = 0; /* it costs more than it gains on this route */
			/* Numbers may come out of order: count, and clear each owner once. */
			for (i = e.ee_info; i - e.ee_info <= e.ee_data - e.ee_info; i++) {
				struct p2p_request **owner = &l->owner[i % PINS];

				if (*owner == NULL)
					continue;
				(*owner)->pending--;
				*owner = NULL;
				some = 1;
			}
		}
		while (l->released != l->pinned && l->owner[l->released % PINS] == NULL)
			l->released++;
	}
	return some;
}

/* Has the descriptor stand for a socket that is connected to nobody, which closes the one that it stood for. */
static int replace(int fd)
{
	int nobody = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), ok;

	if (nobody < 0)
		return 0;
	ok = dup3(nobody, fd, O_CLOEXEC) == fd;
	(void)close(nobody);
	return ok;
}

/* AF_UNSPEC drops the queued bytes and resets the connection at once, even where a forked child still has
 * the socket. A linger of 0, for kernels without AF_UNSPEC here, does so only with the last descriptor. Kernels
 * that seal a connection refuse AF_UNSPEC, and older ones do it wrong. */
int p2p_socket_reset(struct lane *l)
{
	const struct linger none = {.l_onoff = 1, .l_linger = 0};
	const struct sockaddr nobody = {.sa_family = AF_UNSPEC};

	if (!l->comm->sealed && connect(l->fd, &nobody, sizeof(nobody)) == 0)
		return 1;
	(void)setsockopt(l->fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
	return l->comm->sealed && replace(l->fd);
}

/* The kernel must not send from memory that is the caller's again. What a device sends right now may end. */
void p2p_socket_abort(struct lane *l)
{
	const struct timespec pause = {.tv_nsec = 1000000};
	int tries;

	if (!p2p_socket_reset(l))
		return;
	for (tries = 0; tries < DRAIN && l->pinned != l->released; tries++)
		if (!p2p_socket_release(l))
			(void)nanosleep(&pause, NULL);
}
