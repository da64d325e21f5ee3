/* How a comm ends: its first failure, what one end then tells the other, and whether the other is still there. */
#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "comm.h"

enum {
	VERDICT = 0x5645, /* magic of what a receiver says when it gives up */
};

/* Says why to the peer: a sender hears it, or either end where a device moves the bytes. */
static void tell(struct p2p_comm *c)
{
	struct header h = {.magic = htole16(VERDICT), .sequence = htole32((uint32_t)c->error)};
	int i;

	if (!c->sending || c->verbs != NULL)
		(void)send(c->lane[0].fd, &h, sizeof(h), MSG_DONTWAIT | MSG_NOSIGNAL);
	for (i = 0; i < c->lanes; i++)
		(void)shutdown(c->lane[i].fd, SHUT_WR);
}

void p2p_fail(struct p2p_comm *c, int code, const char *format, ...)
{
	va_list args;
	int n;

	if (c->error)
		return;
	c->error = code;
	n = snprintf(c->text, sizeof(c->text), "%s %s: ", c->sending ? "send to" : "receive from", c->peer);
	va_start(args, format);
	vsnprintf(c->text + n, sizeof(c->text) - n, format, args);
	va_end(args);
	tell(c);
}

/* Takes the error that a connection holds, and returns it; 0: none. */
static int held_error(struct lane *l)
{
	int error = 0;
	socklen_t size = sizeof(error);

	(void)getsockopt(l->fd, SOL_SOCKET, SO_ERROR, &error, &size);
	return error;
}

/* Whether errno means that the peer has not sent the record that came. A write may be the first call to fail: then
 * the connection holds the error, while a mistake in the call itself leaves none there. Reading the error clears it,
 * so that the peer can be told. */
static int changed(struct p2p_comm *c)
{
	const int error = errno;
	int i, held = 0;

	if (!c->sealed || (error != EBADMSG && error != EMSGSIZE && error != EINVAL))
		return 0;
	for (i = 0; i < c->lanes; i++)
		held |= held_error(&c->lane[i]) == error;
	errno = error;
	return held || error == EBADMSG;
}

void p2p_lost(struct p2p_comm *c, const char *doing)
{
	const unsigned segment = p2p_unanswered(c);

	if (segment > 0) {
		p2p_fail(c, P2P_E_REMOTE, P2P_UNANSWERED, c->timeout, segment);
		return;
	}
	if (changed(c)) {
		p2p_fail(c, P2P_E_SYSTEM, "%s: what came is not what the peer has sent: somebody on the path has changed it", doing);
		return;
	}
	switch (errno) {
	case EPIPE:
	case ESHUTDOWN:
		p2p_fail(c, P2P_E_REMOTE, "the peer closed the connection");
		return;
	case ECONNRESET:
	case ECONNABORTED:
	case ETIMEDOUT:
	case EHOSTUNREACH:
	case ENETUNREACH:
	case ENETDOWN:
		p2p_fail(c, P2P_E_REMOTE, "%s: %s", doing, strerror(errno));
		return;
	default:
		p2p_fail(c, P2P_E_SYSTEM, "%s: %s", doing, strerror(errno));
	}
}

void p2p_lost_reading(struct p2p_comm *c, const char *doing)
{
	/* of a record's header; of another call they say that it is wrong */
	if (c->sealed && (errno == EMSGSIZE || errno == EINVAL))
		errno = EBADMSG;
	p2p_lost(c, doing);
}

/* How many messages have come, without a gap. */
static uint32_t received(const struct p2p_comm *c)
{
	uint32_t least = c->sequence;
	int i;

	for (i = 0; i < P2P_IN_FLIGHT; i++) {
		const struct p2p_request *r = &c->requests[i];

		if (r->live && r->pending && !r->flush && (int32_t)(le32toh(r->header.sequence) - least) < 0)
			least = le32toh(r->header.sequence);
	}
	return least;
}

void p2p_farewell(struct p2p_comm *c)
{
	const struct header h = {.magic = htole16(VERDICT), .sequence = htole32(P2P_OK), .size = htole64(received(c))};

	(void)send(c->lane[0].fd, &h, sizeof(h), MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* The peer has closed, and says how many messages it had by then: their acknowledgement may be lost, and nobody
 * repeats it. */
static void settle(struct p2p_comm *c, uint32_t number)
{
	int i;

	for (i = 0; i < P2P_IN_FLIGHT; i++) {
		struct p2p_request *r = &c->requests[i];

		if (r->live && (int32_t)(le32toh(r->header.sequence) - number) < 0)
			r->pending = 0;
	}
}

int p2p_alive(struct p2p_comm *c)
{
	const int now_and_later = 2; /* even, but not 0 */
	struct header h;
	ssize_t n;

	if (!c->sending && c->verbs == NULL) {
		if (c->lane[0].ring == NULL) {
			/* Reading tells. This acknowledges the rest now; if the kernel's timer had to, the kernel
			 * would acknowledge each message at once from then on. */
			if (c->lane[0].delayed_ack)
				(void)setsockopt(c->lane[0].fd, IPPROTO_TCP, TCP_QUICKACK, &now_and_later, sizeof(now_and_later));
			return 1;
		}
		n = recv(c->lane[0].fd, &h, 1, MSG_DONTWAIT | MSG_PEEK);
		return n > 0 || (n < 0 && p2p_nothing() == 0);
	}
	n = recv(c->lane[0].fd, &h, sizeof(h), MSG_DONTWAIT);
	if (n < 0 && p2p_nothing() == 0 && !p2p_unanswered(c))
		return 1;
	if (n == (ssize_t)sizeof(h) && le16toh(h.magic) == VERDICT) {
		if (le32toh(h.sequence) == P2P_OK && c->verbs != NULL && c->sending) {
			settle(c, (uint32_t)le64toh(h.size));
			p2p_fail(c, P2P_E_REMOTE, "the peer closed the connection");
		} else if (le32toh(h.sequence) == P2P_E_MISMATCH)
			p2p_fail(c, P2P_E_MISMATCH, "a message is larger than the receive it met");
		else
			p2p_fail(c, P2P_E_REMOTE, "the peer gave up; it says why");
		return 0;
	}
	if (n >= 0) {
		if (!c->sending) /* what came before may not be reported yet: see p2p_verbs_step */
			return 0;
		errno = ESHUTDOWN;
	}
	p2p_lost_reading(c, "look at the peer");
	return 0;
}
