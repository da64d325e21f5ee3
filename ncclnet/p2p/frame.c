/* Messages on lanes: a header and a share of the message each. A message smaller
 * than the cut lies on lane 0 alone, a larger one on all lanes. A receiver reads
 * another lane only once lane 0 has said that something comes there. */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "verbs.h"

enum {
	BUDGET = 4 << 20,     /* bytes that a step may move on a lane, about */
	SCANT = 4 << 10,      /* read ahead where a large one may come */
	TINY = 240,           /* bytes of a message whose second copy is for nothing */
};

static void pop(struct lane *l)
{
	p2p_event_moved(l->queue[l->first++ % P2P_IN_FLIGHT]);
	l->moved = 0;
	if (!l->comm->sealed || !l->comm->sending)
		p2p_settle(l);
}

/* Gathers the next bytes to send on a lane. A share worth pinning is written alone,
 * after its header: then *pin is its request. */
static int gather(struct lane *l, struct iovec *iov, struct header *header, struct p2p_request **pin)
{
	unsigned index = (unsigned)(l - l->comm->lane), i;
	size_t skip = l->moved, len, total = 0;
	struct p2p_request *r;
	int k = 0, h = 0;
	char *at;

	*pin = NULL;
	for (i = l->first; i != l->last && k + 2 <= GATHER && total < BUDGET; i++) {
		r = l->queue[i % P2P_IN_FLIGHT];
		len = p2p_share(r, index, &at);
		if (skip < HEADER) {
			header[h] = r->header;
			header[h].lane = (uint8_t)index;
			iov[k].iov_base = (char *)&header[h++] + skip;
			iov[k++].iov_len = HEADER - skip;
			total += HEADER - skip;
			skip = HEADER;
		}
		at += skip - HEADER;
		len -= skip - HEADER;
		skip = 0;
		if (l->comm->zerocopy && len >= LARGE) {
			if (k > 0)
				break;
			*pin = r;
		}
		if (len > 0) {
			iov[k].iov_base = at;
			iov[k++].iov_len = len;
			total += len;
		}
		if (*pin != NULL)
			break;
	}
	return k;
}

/* Counts n bytes as sent. */
static void advance(struct lane *l, size_t n)
{
	unsigned index = (unsigned)(l - l->comm->lane);
	struct p2p_request *r;
	size_t len;
	char *at;

	while (n > 0 && l->first != l->last) {
		r = l->queue[l->first % P2P_IN_FLIGHT];
		p2p_event_begun(r);
		len = HEADER + p2p_share(r, index, &at) - l->moved;
		if (n < len)
			break;
		n -= len;
		pop(l);
	}
	l->moved += n;
}

static int send_lane(struct lane *l)
{
	struct iovec iov[GATHER];
	struct header header[GATHER];
	struct p2p_request *pin;
	size_t total = 0, wanted;
	ssize_t n;
	int k, i;

	while (l->first != l->last && total < BUDGET) {
		k = gather(l, iov, header, &pin);
		for (wanted = 0, i = 0; i < k; i++)
			wanted += iov[i].iov_len;
		n = l->stream->send(l, iov, k, pin);
		if (n < 0)
			p2p_lost(l->comm, "write");
		if (n <= 0)
			break;
		total += (size_t)n;
		l->taken += (size_t)n;
		advance(l, (size_t)n);
		if ((size_t)n < wanted)
			break;
	}
	return total > 0;
}

/* How many bytes to read beyond those known to be wanted. Each of them is copied twice, but with luck they
 * are several small messages for one system call. */
static size_t ahead(const struct lane *l, size_t len)
{
	size_t few = HEADER - (l->to - l->from);

	if (len >= LARGE || l != l->comm->lane)
		return few; /* what follows will be large, too */
	if (len == 0 && !l->delayed_ack && l->queue[l->first % P2P_IN_FLIGHT]->capacity >= LARGE && l->ahead > SCANT)
		return SCANT - (l->to - l->from);
	return l->ahead - (l->to - l->from);
}

/* Whether to look at the next message before taking it (not where it is sealed: it is kept whole then), which copies it
 * twice: where the messages of late were small enough for the staging room, and somebody waits for this one, or a copy
 * is for nothing. */
static int peeks(const struct lane *l)
{
	return !l->comm->sealed && l->delayed_ack && l->latest <= (l->last - l->first > FEW ? TINY : STAGING - HEADER);
}

/* Reads len bytes to data and then into the staging room, as far as there are
 * any. Returns the bytes read, 0 for none; *more tells whether to try again. */
static size_t fill(struct lane *l, void *data, size_t len, int *more)
{
	struct iovec iov[2];
	ssize_t n;
	int k = 0;
	size_t room = ahead(l, len);

	memmove(l->staged, l->staged + l->from, l->to - l->from);
	l->to -= l->from;
	l->from = 0;
	if (len > 0)
		iov[k++] = (struct iovec){.iov_base = data, .iov_len = len < BUDGET ? len : BUDGET};
	if (len < BUDGET)
		iov[k++] = (struct iovec){.iov_base = l->staged + l->to, .iov_len = room};
	n = len == 0 && peeks(l) ? p2p_socket_peek(l, iov) : l->stream->recv(l, iov, k);
	*more = n > 0 && (size_t)n >= iov[0].iov_len;
	if (n < 0) {
		if (errno == ESHUTDOWN)
			l->ended = 1;
		else
			p2p_lost_reading(l->comm, "read");
		return 0;
	}
	if ((size_t)n > len)
		l->to += (size_t)n - len;
	return (size_t)n;
}

/* Takes a header from the staging room. */
static int open_share(struct lane *l, struct p2p_request *r)
{
	struct p2p_comm *c = l->comm;
	unsigned index = (unsigned)(l - c->lane);
	struct header h;
	int i;

	memcpy(&h, l->staged + l->from, HEADER);
	l->from += HEADER;
	if (h.magic != r->header.magic || h.sequence != r->header.sequence || h.lane != index ||
	    (h.lanes != 1 && h.lanes != c->lanes) || (index > 0 && (h.lanes != r->header.lanes || h.size != r->header.size))) {
		p2p_fail(c, P2P_E_SYSTEM,
			"the stream is garbled: lane %u has %#x, message %u of %llu bytes on lane %u of %u; awaited is message %u",
			 index, le16toh(h.magic), le32toh(h.sequence), (unsigned long long)le64toh(h.size), h.lane, h.lanes,
			 le32toh(r->header.sequence));
		return 0;
	}
	l->moved = HEADER;
	if (index > 0)
		return 1;
	p2p_event_begun(r);
	if (le64toh(h.size) > r->capacity) {
		p2p_fail(c, P2P_E_MISMATCH, "message %u has %llu bytes, its receive %zu",
			 le32toh(h.sequence), (unsigned long long)le64toh(h.size), r->capacity);
		return 0;
	}
	r->header = h;
	r->size = le64toh(h.size);
	r->pending = h.lanes;
	for (i = 1; i < h.lanes; i++)
		p2p_push(&c->lane[i], r);
	return 1;
}

static int recv_lane(struct lane *l)
{
	struct p2p_comm *c = l->comm;
	unsigned index = (unsigned)(l - c->lane);
	struct p2p_request *r;
	size_t total = 0, len, n;
	int more = 1;
	char *at;

	while (l->first != l->last && total < BUDGET) {
		r = l->queue[l->first % P2P_IN_FLIGHT];
		if (l->moved < HEADER) {
			if (l->to - l->from < HEADER) {
				if (!more)
					break;
				n = fill(l, NULL, 0, &more);
				total += n;
				if (l->to - l->from < HEADER)
					break;
			}
			if (!open_share(l, r))
				break;
		}
		len = p2p_share(r, index, &at);
		at += l->moved - HEADER;
		len -= l->moved - HEADER;
		n = l->to - l->from < len ? l->to - l->from : len;
		if (n > 0)
			memcpy(at, l->staged + l->from, n);
		l->from += n;
		l->moved += n;
		total += n; /* may count staged bytes twice, which only ends a step early */
		if (n < len) {
			if (!more)
				break;
			n = fill(l, at + n, len - n, &more);
			if (n == 0)
				break;
			total += n;
			len = p2p_share(r, index, &at) - (l->moved - HEADER);
			l->moved += n < len ? n : len;
			if (n < len)
				continue;
		}
		l->latest = r->size;
		if (l->ring == NULL)
			p2p_socket_acknowledge(l, r->size);
		pop(l);
	}
	return total > 0;
}

/* A stream that ended may leave others with the rest of earlier messages. */
static void check_end(struct p2p_comm *c)
{
	int i, ended = 0;

	for (i = 0; i < c->lanes; i++) {
		if (c->lane[i].first == c->lane[i].last)
			continue;
		if (!c->lane[i].ended)
			return;
		ended = 1;
	}
	if (ended)
		p2p_fail(c, P2P_E_REMOTE, "the peer closed the connection");
}

int p2p_step(struct p2p_comm *c)
{
	int i, moved = 0;

	if (c->verbs != NULL)
		return p2p_verbs_step(c);

	for (i = 0; i < c->lanes && !c->error; i++) {
		struct lane *l = &c->lane[i];

		if (l->pinned != l->released)
			moved |= p2p_socket_release(l);
		if (l->first != l->last && !l->ended)
			moved |= c->sending ? send_lane(l) : recv_lane(l);
		if (l->settled != l->first && !c->error)
			moved |= p2p_seal_settle(l);
	}
	if (!c->sending && !moved && !c->error)
		check_end(c);
	return moved;
}
