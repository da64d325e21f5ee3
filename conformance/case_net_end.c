/* How connections, communicators and processes end, and begin again. */
#include <dirent.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "library.h"
#include "net_link.h"

/* One message of 10000 bytes from rank 0 to rank 1 over a link of its own. */
static void one_message(struct rank *r, struct link *l, uint64_t key)
{
	enum { BYTES = 10000 };
	struct buffer b = buffer_new(BYTES, 0);
	struct message m = { .receive = r->rank == 1, .data = b.data, .size = BYTES };

	m.comm = m.receive ? l->recv : l->send;
	m.mhandle = memory(r, m.comm, b.data, BYTES);
	if (!m.receive)
		pattern_fill(b.data, BYTES, key);
	messages_wait(r, &m, 1, 1);
	pattern_check("message", b.data, BYTES, key);
	OK(net_dereg_mr(&r->net, m.comm, m.mhandle));
	buffer_free(&b);
}

static void connect_send_close(struct rank *r, uint64_t key)
{
	struct link l;

	links_open(r, &l, 1, 0, 1);
	one_message(r, &l, key);
	barrier(r);
	links_close(r, &l, 1);
}

static int descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

CASE(net_leak, "net.leak", NET, 2, 2, NET_LEAK, "300 connections one after another, with 150 descriptors to spare")
{
	enum { TIMES = 300, SPARE = 150, KEPT = 40 };
	struct rlimit limit;
	int before, after = 0;

	net_begin(r);
	connect_send_close(r, 1);
	before = descriptors();
	getrlimit(RLIMIT_NOFILE, &limit);
	if (limit.rlim_cur > (rlim_t)before + SPARE)
		limit.rlim_cur = (rlim_t)before + SPARE;
	setrlimit(RLIMIT_NOFILE, &limit);
	for (uint64_t i = 0; i < TIMES; i++)
		connect_send_close(r, i);
	/* A plugin may close behind our back, a little later. */
	for (int i = 0; i < 200; i++) {
		after = descriptors();
		if (after <= before + KEPT)
			break;
		usleep(10000);
	}
	EXPECT(after <= before + KEPT, "expected about %d descriptors after %d connections, got %d", before, TIMES, after);
	note("%d descriptors before, %d after", before, after);
}

CASE(net_again, "net.init-again", NET, 2, 2, NET_AGAIN, "three communicators one after another")
{
	for (uint64_t i = 0; i < 3; i++) {
		OK(net_init(&r->net, 1 + i, NULL));
		under(NET_AGAIN);
		connect_send_close(r, i);
		OK(net_finalize(&r->net, r->net.ctx));
		barrier(r);
	}
}

CASE(net_load_again, "net.load-again", NET, 2, 2, NET_AGAIN, "dlclose and dlopen between three communicators")
{
	int abi = r->net.version->number;

	for (uint64_t i = 0; i < 3; i++) {
		net_begin(r);
		connect_send_close(r, i);
		OK(net_finalize(&r->net, r->net.ctx));
		barrier(r);
		library_close(r);
		library_open(r, NET, abi);
	}
}

CASE(net_contexts, "net.contexts", NET, 2, 2, NET_CONTEXTS, "two communicators at once; one ends, the other goes on")
{
	void *first = NULL, *second = NULL;
	struct link a, b;

	if (!r->net.calls.contexts)
		not_offered("contexts came with v11");
	OK(net_init(&r->net, 1, &first));
	OK(net_init(&r->net, 2, &second));
	r->net.ctx = first;
	links_open(r, &a, 1, 0, 1);
	r->net.ctx = second;
	links_open(r, &b, 1, 0, 1);
	one_message(r, &a, 1);
	one_message(r, &b, 2);
	barrier(r);
	links_close(r, &a, 1);
	OK(net_finalize(&r->net, first));
	one_message(r, &b, 3);
	connect_send_close(r, 4);
	barrier(r);
	links_close(r, &b, 1);
	OK(net_finalize(&r->net, second));
}

CASE(net_fork, "net.fork", NET, 2, 2, NET_FORK, "a child forked between transfers ends at once; transfers go on")
{
	struct link l;
	int status = -1;

	net_begin(r);
	links_open(r, &l, 1, 0, 1);
	for (uint64_t i = 0; i < 4; i++) {
		pid_t child;

		one_message(r, &l, i);
		child = fork();
		if (child == 0)
			_exit(7);
		EXPECT(child > 0, "expected a child, got none from the system");
		EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7,
			"expected the child to exit with status 7, got wait status 0x%x", (unsigned)status);
	}
	connect_send_close(r, 9);
}

/* Messages that nobody will complete: posts as many as the plugin takes. */
enum { PENDING = 4, PENDING_BYTES = 4 << 20 };

static void post_pending(struct rank *r, struct link *l, struct message *m, int most)
{
	int posted = 0;

	for (int i = 0; i < PENDING; i++) {
		struct buffer b = buffer_new(PENDING_BYTES, 0);

		m[i] = (struct message){ .receive = l->recv != NULL, .data = b.data, .size = PENDING_BYTES };
		m[i].comm = m[i].receive ? l->recv : l->send;
		m[i].mhandle = memory(r, m[i].comm, b.data, PENDING_BYTES);
	}
	while (posted < most && message_post(r, &m[posted]))
		posted++;
}

static int post_raw(struct rank *r, struct message *m)
{
	m->request = NULL;
	return m->receive ?
		net_irecv(&r->net, m->comm, 1, &m->data, &m->size, &m->tag, &m->mhandle, &m->phandle, &m->request) :
		net_isend(&r->net, m->comm, m->data, m->size, m->tag, m->mhandle, m->phandle, &m->request);
}

/* Drives m until all are done, a call fails, or part of the case's time is over.
 * Returns the error, ABI_SUCCESS for all done, -1 for silence. */
static int until_reported(struct rank *r, struct message *m, int count)
{
	double end = now() + r->timeout * 0.4;
	int result = ABI_SUCCESS;

	while (now() < end) {
		int left = 0;
		bool blocked = false;

		for (int i = 0; i < count; i++) {
			int done = 0;

			if (!m[i].request && !m[i].done && !blocked)
				result = post_raw(r, &m[i]);
			blocked |= !m[i].request && !m[i].done;
			if (result == ABI_SUCCESS && m[i].request) {
				result = net_test(&r->net, m[i].request, &done, NULL);
				if (done)
					m[i].request = NULL;
			}
			if (result != ABI_SUCCESS)
				return result;
			m[i].done |= done != 0;
			left += !m[i].done;
		}
		if (left == 0)
			return ABI_SUCCESS;
		breathe(r, false);
	}
	return -1;
}

/* The closer's requests have no counterpart when it closes. The other rank may
 * see completions or an error then, and should not be left without either. */
static void close_in_flight(struct rank *r, int closer)
{
	struct message m[PENDING];
	struct link l;
	int reported;

	net_begin(r);
	links_open(r, &l, 1, 0, 1);
	post_pending(r, &l, m, r->rank == closer ? PENDING : 0);
	barrier(r);
	if (r->rank == closer) {
		/* NCCL deregisters first, data in flight or not. */
		for (int i = 0; i < PENDING; i++)
			OK(net_dereg_mr(&r->net, m[i].comm, m[i].mhandle));
	} else {
		reported = until_reported(r, m, PENDING);
		EXPECT_RULE(NET_PEER_LOST, reported >= 0, "expected completions or an error after the peer closed, got neither");
	}
	links_close(r, &l, 1);
	OK(net_finalize(&r->net, r->net.ctx));
}

CASE(net_close_send, "net.close-send-in-flight", NET, 2, 2, NET_CLOSE, "closeSend with sends of 4 MiB in flight")
{
	close_in_flight(r, 0);
}

CASE(net_close_recv, "net.close-receive-in-flight", NET, 2, 2, NET_CLOSE, "closeRecv with receives of 4 MiB in flight")
{
	close_in_flight(r, 1);
}

CASE(net_close_both, "net.close-idle-peer", NET, 2, 2, NET_CLOSE, "both sides close with requests that never match")
{
	struct message m[PENDING];
	struct link links[2];

	net_begin(r);
	links_open(r, &links[0], 1, 0, 1);
	links_open(r, &links[1], 1, 1, 0);
	/* Receives only: no send will ever come. */
	post_pending(r, r->rank == 1 ? &links[0] : &links[1], m, PENDING);
	barrier(r);
	links_close(r, links, 2);
	OK(net_finalize(&r->net, r->net.ctx));
}

CASE(net_peer_lost, "net.peer-lost", NET, 2, 2, NET_PEER_LOST,
	"the peer is killed with requests of both sides in flight")
{
	struct message m[2][PENDING];
	struct link links[2];
	double start;
	int reported;

	net_begin(r);
	links_open(r, &links[0], 1, 0, 1);
	links_open(r, &links[1], 1, 1, 0);
	one_message(r, &links[0], 1);
	under(NET_PEER_LOST);
	/* The last receives of rank 0 have no sends. */
	post_pending(r, &links[0], m[0], PENDING);
	post_pending(r, &links[1], m[1], r->rank == 0 ? PENDING : 2);
	barrier(r);
	if (r->rank == 1)
		die(r);
	start = now();
	reported = until_reported(r, m[1], PENDING);
	EXPECT(reported > 0, "expected an error from test, irecv or isend, got %s in %.0f s",
		reported < 0 ? "none" : "completions", r->timeout * 0.4);
	note("reported after %.2f s: %s", now() - start, reported > 0 ? result_name(reported) : "nothing");
	links_close(r, links, 2);
}
