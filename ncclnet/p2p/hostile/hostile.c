/* hostile CONNECTIONS [SEED]: comms with peers that break the protocol. A receiver reads streams that are cut,
 * repeated and garbled, a sender hears nonsense, a ring's counters jump. scripts/conformance builds it with
 * the sanitizers, which judge; nothing here may crash, hang or bring more bytes than there is room for. */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../comm.h"

enum { STEPS = 60, POLITE = 20, WORDS = 9000, PREFACE = 4096, TAKEN = 128 /* where a ring's reader counts */ };

static uint64_t state;
static int door;
static struct sockaddr_in at = {.sin_family = AF_INET};
static long done, failed;

static uint64_t any(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static uint64_t below(uint64_t n) { return any() % n; }
static int one_in(uint64_t n) { return below(n) == 0; }

static void need(int holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "hostile: %s (%s)\n", what, strerror(errno));
	abort();
}

/* A comm, its peer, and the comm's requests in flight. */
struct victim {
	struct p2p_comm *comm;
	int sending, lanes, far[P2P_LANES];
	int memfd; /* of a ring, or -1 */
	char *ring;
	size_t capacity;
	uint32_t next[P2P_LANES]; /* the number that a message on a lane should have */
	struct p2p_request *request[P2P_IN_FLIGHT];
	char *data[P2P_IN_FLIGHT];
	size_t size[P2P_IN_FLIGHT];
};

static void open_door(void)
{
	socklen_t size = sizeof(at);

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	door = socket(AF_INET, SOCK_STREAM, 0);
	need(door >= 0 && bind(door, (void *)&at, size) == 0 && listen(door, P2P_LANES) == 0 &&
	     getsockname(door, (void *)&at, &size) == 0, "listen on loopback");
}

static void open_ring(struct victim *v)
{
	v->capacity = (size_t)256 << below(6);
	v->memfd = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	need(v->memfd >= 0 && ftruncate(v->memfd, (off_t)p2p_ring_size(v->capacity)) == 0 &&
	     fcntl(v->memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0, "memory of a ring");
	v->ring = mmap(NULL, p2p_ring_size(v->capacity), PROT_READ | PROT_WRITE, MAP_SHARED, v->memfd, 0);
	need(v->ring != MAP_FAILED, "map a ring");
}

static struct victim begin(void)
{
	struct victim v = {.sending = one_in(4), .lanes = 1 + (int)below(4), .memfd = -1};
	struct p2p_setup set = {.zerocopy = (int)below(3), .timeout = 100, .peer = "hostile"};
	int i;

	if (one_in(3)) {
		v.lanes = 1;
		open_ring(&v);
	}
	for (i = 0; i < v.lanes; i++) {
		set.fds[i] = socket(AF_INET, SOCK_STREAM, 0);
		need(set.fds[i] >= 0 && connect(set.fds[i], (void *)&at, sizeof(at)) == 0, "connect over loopback");
		v.far[i] = accept(door, NULL, NULL);
		need(v.far[i] >= 0, "accept over loopback");
	}
	set.sending = v.sending;
	set.lanes = v.lanes;
	set.memfd = v.memfd;
	set.cut = 1 + below(9000);
	v.comm = p2p_open(&set);
	need(v.comm != NULL, "p2p_open");
	return v;
}

static void end(struct victim *v)
{
	int i;

	p2p_close(v->comm);
	for (i = 0; i < P2P_IN_FLIGHT; i++)
		free(v->data[i]);
	for (i = 0; i < v->lanes; i++)
		(void)close(v->far[i]);
	if (v->memfd < 0)
		return;
	(void)munmap(v->ring, p2p_ring_size(v->capacity));
	(void)close(v->memfd);
}

/* Posts a send or a receive, where one is free. */
static void post(struct victim *v)
{
	size_t n = one_in(3) ? below(200000) : below(5000);
	int i, rc;

	for (i = 0; i < P2P_IN_FLIGHT && v->request[i] != NULL; i++)
		;
	if (i == P2P_IN_FLIGHT)
		return;
	v->data[i] = calloc(1, n);
	v->size[i] = n;
	rc = v->sending ? p2p_isend(v->comm, v->data[i], n, 0, 0, NULL, &v->request[i])
			: p2p_irecv(v->comm, v->data[i], n, 0, 0, NULL, &v->request[i]);
	if (rc != P2P_OK || v->request[i] == NULL) {
		free(v->data[i]);
		v->data[i] = NULL;
		v->request[i] = NULL;
	}
}

/* Writes bytes to a ring as its peer would, and perhaps a counter that they do not explain. */
static void say_to_ring(struct victim *v, const unsigned char *words, size_t n)
{
	_Atomic uint64_t *count = (void *)(v->ring + (v->sending ? TAKEN : 0));
	uint64_t was = *count, more = v->sending ? below(300) : n < v->capacity ? n : v->capacity;
	size_t i;

	for (i = 0; !v->sending && i < n; i++)
		v->ring[PREFACE + ((was + i) & (v->capacity - 1))] = (char)words[i];
	*count = one_in(6) ? any() : was + more;
}

/* The peer says something: mostly a header that could be right, and some bytes. */
static void say(struct victim *v)
{
	static unsigned char words[sizeof(struct header) + WORDS];
	int lane = (int)below((uint64_t)v->lanes);
	uint64_t size = one_in(4) ? any() : below(6000);
	struct header h = {
		.magic = htole16(one_in(10) ? (one_in(2) ? 0x5645 : (uint16_t)any()) : 0x5032),
		.lane = (uint8_t)lane,
		.lanes = (uint8_t)(one_in(8) ? any() : one_in(2) ? 1 : (uint64_t)v->lanes),
		.sequence = htole32(one_in(8) ? (uint32_t)any() : v->next[lane]),
		.size = htole64(size),
	};
	size_t n = 0, more = one_in(3) || size >= 6000 ? below(WORDS) : size;

	if (!one_in(4)) {
		memcpy(words, &h, sizeof(h));
		n = sizeof(h);
		v->next[lane]++;
	}
	while (more-- > 0)
		words[n++] = (unsigned char)more;
	if (v->ring != NULL)
		say_to_ring(v, words, n);
	(void)send(v->far[lane], words, n, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (one_in(100))
		(void)shutdown(v->far[below((uint64_t)v->lanes)], SHUT_WR);
}

static void test_all(struct victim *v)
{
	int i, over, rc;
	size_t n;

	for (i = 0; i < P2P_IN_FLIGHT; i++) {
		if (v->request[i] == NULL)
			continue;
		n = 0;
		rc = p2p_test(v->request[i], &over, &n);
		need(rc == P2P_OK || (!over && *p2p_error(v->comm) != '\0'), "an error without a word");
		failed += rc != P2P_OK;
		if (!over)
			continue;
		need(n <= v->size[i], "more bytes than there is room for");
		done++;
		free(v->data[i]);
		v->data[i] = NULL;
		v->request[i] = NULL;
	}
}

/* Begins as a peer should: small messages in a row are read in a way of their own. */
static void behave(struct victim *v)
{
	unsigned char words[sizeof(struct header) + 200] = {0};
	int i;

	for (i = 0; i < POLITE; i++) {
		struct header h = {.magic = htole16(0x5032), .lanes = 1, .sequence = htole32(v->next[0]++),
			.size = htole64(below(200))};

		memcpy(words, &h, sizeof(h));
		(void)send(v->far[0], words, sizeof(h) + le64toh(h.size), MSG_NOSIGNAL);
		post(v);
		test_all(v);
	}
}

int main(int argc, char **argv)
{
	long connections = argc > 1 ? atol(argv[1]) : 1000, i;
	int step;

	state = argc > 2 ? strtoull(argv[2], NULL, 10) : 88172645463325252u;
	open_door();
	for (i = 0; i < connections; i++) {
		struct victim v = begin();

		if (!v.sending && v.ring == NULL && one_in(2))
			behave(&v);
		for (step = 0; step < STEPS; step++) {
			if (one_in(2))
				post(&v);
			else
				say(&v);
			test_all(&v);
		}
		end(&v);
	}
	printf("%ld connections with hostile peers: %ld requests done, %ld tests failed\n", connections, done, failed);
	return 0;
}
