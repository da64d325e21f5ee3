/* What a plugin tells NCCL's profiler of its requests. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "library.h"
#include "net_link.h"

enum { REQUESTS = 48, EVENTS = 4096 };

/* What a request is given for the profiler. NCCL's belongs to a step of a proxy, and is another one's when that is
 * over. */
static struct handle {
	bool in_flight;
	int running;			/* events that have not stopped */
} handles[REQUESTS];

static struct event {
	struct handle *parent;
	bool stopped;
} events[EVENTS];

static struct {
	pthread_mutex_t lock;		/* plugins tell from threads of their own, too */
	bool wanted;			/* a profiler takes events */
	unsigned starts;
	char wrong[160];		/* the first wrong event */
} told = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void wrong(const char *what, const void *got)
{
	if (!told.wrong[0])
		snprintf(told.wrong, sizeof(told.wrong), "%s (%p)", what, got);
}

static void start(void **event, struct handle *parent)
{
	if (!parent)
		wrong("a start without a handle", parent);
	else if (parent < handles || parent >= handles + REQUESTS)
		wrong("a start with a handle that no request has", parent);
	else if (!parent->in_flight)
		wrong("a start with the handle of a request that is not in flight", parent);
	else if (*event)
		wrong("a start whose event holds what NCCL then takes for one", *event);
	else if (told.wanted && told.starts < EVENTS) {
		events[told.starts] = (struct event){ .parent = parent };
		*event = &events[told.starts];
		parent->running++;
	}
	told.starts++;
}

static void go_on(struct event *e, bool stops)
{
	if (!e)
		return;			/* as NCCL's profilers do */
	if (e < events || e >= events + EVENTS || !e->parent)
		wrong("an event that was not started", e);
	else if (e->stopped)
		wrong("an event that has stopped already", e);
	else if (stops) {
		e->stopped = true;
		e->parent->running--;
	}
}

static int profile(void **event, int type, void *parent, int64_t plugin, void *data)
{
	(void)plugin, (void)data;
	pthread_mutex_lock(&told.lock);
	if (!event)
		wrong("no place for the event", event);
	else if (type == ABI_EVENT_START)
		start(event, parent);
	else if (type == ABI_EVENT_STOP || type == ABI_EVENT_UPDATE || type == ABI_EVENT_UPDATE_AND_STOP)
		go_on(*event, type != ABI_EVENT_UPDATE);
	else
		wrong("a type that NCCL does not have", NULL);
	pthread_mutex_unlock(&told.lock);
	return ABI_SUCCESS;
}

static void begin(struct rank *r, bool wanted)
{
	if (!r->net.calls.profiles)
		not_offered("profilers came with v10");
	r->net.profile = profile;
	told.wanted = wanted;
	net_begin(r);
}

/* A request begins or ends; it was not taken, or is done, where it ends. */
static void in_flight(struct handle *h, bool is)
{
	int running;

	pthread_mutex_lock(&told.lock);
	h->in_flight = is;
	running = h->running;
	pthread_mutex_unlock(&told.lock);
	if (!is)
		EXPECT(running == 0, "expected the events of a request to have stopped with it, got %d that have not", running);
	EXPECT(!told.wrong[0], "expected starts of requests in flight and one stop each, got %s", told.wrong);
}

/* Messages from rank 0 to rank 1; with handles, if given. */
static void messages(struct rank *r, bool handed)
{
	enum { WINDOW = 8 };
	static const size_t sizes[] = { 0, 1, 4096, 70000, 1 << 20 };
	enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };
	struct message m[REQUESTS];
	struct buffer b[REQUESTS];
	struct link l;
	int done = 0, posted = 0, starts[MAX_RANKS], all = 0;

	links_open(r, &l, 1, 0, 1);
	for (int i = 0; i < REQUESTS; i++) {
		size_t size = sizes[i % SIZES];

		b[i] = buffer_new(size + 100, 0);
		m[i] = (struct message){ .receive = r->rank == 1, .data = b[i].data, .size = r->rank == 1 ? size + 100 : size };
		m[i].comm = m[i].receive ? l.recv : l.send;
		m[i].mhandle = memory(r, m[i].comm, b[i].data, b[i].size);
		m[i].phandle = handed ? &handles[i] : NULL;
		if (!m[i].receive)
			pattern_fill(b[i].data, size, key_of(r, (uint64_t)i, 0, 0));
	}
	polling(NET_COMPLETION);
	while (done < REQUESTS) {
		bool moved = false;

		if (posted < REQUESTS && posted - done < WINDOW) {
			in_flight(&handles[posted], true);
			if (message_post(r, &m[posted])) {
				posted++;
				moved = true;
			} else
				in_flight(&handles[posted], false);
		}
		for (int i = 0; i < posted; i++)
			if (!m[i].done && message_test(r, &m[i])) {
				in_flight(&handles[i], false);
				done++;
				moved = true;
			}
		breathe(r, moved);
	}
	for (int i = 0; i < REQUESTS && r->rank == 1; i++)
		pattern_check("message", b[i].data, sizes[i % SIZES], key_of(r, (uint64_t)i, 0, 0));
	barrier(r);
	links_close(r, &l, 1);
	EXPECT(!told.wrong[0], "expected nothing after the requests, got %s", told.wrong);
	exchange(r, &told.starts, starts, sizeof(starts[0]));
	for (int i = 0; i < r->ranks; i++)
		all += starts[i];
	if (all == 0 && handed)
		not_offered("it tells the profiler nothing");
	note("%d events of %d sends and as many receives", all, REQUESTS);
}

CASE(net_profile, "net.profiler", NET, 2, 2, NET_PROFILER,
	"events start and stop with their requests, below the handles of these")
{
	begin(r, true);
	messages(r, true);
}

CASE(net_profile_unwanted, "net.profiler-unwanted", NET, 2, 2, NET_PROFILER,
	"a profiler that wants no event: what NCCL then stops is NULL")
{
	begin(r, false);
	messages(r, true);
}

CASE(net_profile_none, "net.profiler-no-handle", NET, 2, 2, NET_PROFILER,
	"requests without a handle, of which NCCL can be told nothing")
{
	begin(r, true);
	messages(r, false);
}

/* Rank 0 has sends and receives in flight that never match when rank 1 closes, or is killed. */
static void cut_short(struct rank *r, bool killed)
{
	enum { SENDS = 2, RECEIVES = 4, BYTES = 4 << 20, POLLS = 2000 };
	struct message m[SENDS + RECEIVES];
	struct link links[2];
	int failed = 0;

	begin(r, true);
	links_open(r, &links[0], 1, 0, 1);
	links_open(r, &links[1], 1, 1, 0);
	for (int i = 0; i < SENDS + RECEIVES && r->rank == 0; i++) {
		struct buffer b = buffer_new(BYTES, 0);

		m[i] = (struct message){ .receive = i >= SENDS, .data = b.data, .size = BYTES, .phandle = &handles[i] };
		m[i].comm = m[i].receive ? links[1].recv : links[0].send;
		m[i].mhandle = memory(r, m[i].comm, b.data, BYTES);
		in_flight(&handles[i], true);
		message_post(r, &m[i]);
	}
	barrier(r);
	if (r->rank == 1 && killed)
		die(r);
	if (r->rank == 1)
		links_close(r, links, 2);
	for (int poll = 0; poll < POLLS && r->rank == 0 && failed == 0; poll++)
		for (int i = 0; i < SENDS + RECEIVES; i++) {
			int done = 0;

			if (m[i].request && net_test(&r->net, m[i].request, &done, NULL) != ABI_SUCCESS)
				failed++;
			if (done) {
				m[i].request = NULL;
				in_flight(&handles[i], false);
			}
			breathe(r, false);
		}
	if (r->rank == 1)
		return;
	links_close(r, links, 2);
	for (int i = 0; i < SENDS + RECEIVES; i++)
		in_flight(&handles[i], false);
	if (told.starts == 0)
		not_offered("it tells the profiler nothing");
	note("%u events; %d requests had failed when the connections were closed", told.starts, failed);
}

CASE(net_profile_close, "net.profiler-close", NET, 2, 2, NET_PROFILER,
	"events of requests in flight have stopped when both sides have closed")
{
	cut_short(r, false);
}

CASE(net_profile_lost, "net.profiler-peer-lost", NET, 2, 2, NET_PROFILER,
	"events of requests that fail because the peer is killed stop, too")
{
	cut_short(r, true);
}
