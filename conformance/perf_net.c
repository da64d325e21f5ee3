/* One-way latency and bandwidth of isend and irecv, polled as NCCL polls. */
#include "net_link.h"
#include "perf.h"

enum { WARM_UP = 3 };

struct pipe {
	struct rank *r;
	struct buffer send, recv;
	struct message out, in[PERF_IN_FLIGHT];
	void *send_comm, *recv_comm, *send_mhandle, *recv_mhandle;
};

/* Until one message is done. */
static void complete(struct pipe *p, struct message *m)
{
	bool busy;

	do {
		busy = m->posted ? message_test(p->r, m) : message_post(p->r, m);
		breathe(p->r, busy);
	} while (!m->done);
}

static struct message outgoing(struct pipe *p, size_t bytes, int i)
{
	size_t slot = bytes * PERF_IN_FLIGHT <= PERF_POOL ? bytes * (size_t)(i % PERF_IN_FLIGHT) : 0;

	return (struct message){ .comm = p->send_comm, .data = p->send.data + slot, .size = bytes, .tag = p->r->rank,
		.mhandle = p->send_mhandle };
}

static struct message incoming(struct pipe *p, size_t bytes, int i)
{
	size_t slot = bytes * PERF_IN_FLIGHT <= PERF_POOL ? bytes * (size_t)(i % PERF_IN_FLIGHT) : 0;

	return (struct message){ .comm = p->recv_comm, .receive = true, .data = p->recv.data + slot, .size = bytes,
		.tag = 1 - p->r->rank, .mhandle = p->recv_mhandle };
}

static void ping_pong(struct pipe *p, size_t bytes, int times)
{
	for (int i = 0; i < times; i++) {
		struct message in = incoming(p, bytes, 0), out = outgoing(p, bytes, 0);

		message_post(p->r, &in);	/* a refusal is asked again below */
		if (p->r->rank == 0)
			complete(p, &out);
		complete(p, &in);
		if (p->r->rank == 1)
			complete(p, &out);
	}
}

/* Rank 0 sends, eight in flight; the last message is answered. */
static void stream(struct pipe *p, size_t bytes, int times)
{
	struct message m[PERF_IN_FLIGHT], answer;
	int posted = 0, done = 0;

	while (done < times) {
		bool busy = false;

		while (posted < times && posted - done < PERF_IN_FLIGHT) {
			struct message *next = &m[posted % PERF_IN_FLIGHT];

			*next = p->r->rank == 0 ? outgoing(p, bytes, posted) : incoming(p, bytes, posted);
			if (!message_post(p->r, next))
				break;
			posted++;
			busy = true;
		}
		if (done < posted && message_test(p->r, &m[done % PERF_IN_FLIGHT])) {
			done++;
			busy = true;
		}
		breathe(p->r, busy);
	}
	answer = p->r->rank == 0 ? incoming(p, 1, 0) : outgoing(p, 1, 0);
	complete(p, &answer);
}

static double timed(struct pipe *p, void (*run)(struct pipe *p, size_t bytes, int times), size_t bytes, int times)
{
	double start;

	run(p, bytes, WARM_UP);
	barrier(p->r);
	start = now();
	run(p, bytes, times);
	return (now() - start) / times * 1e6;
}

static void run(struct rank *r)
{
	struct perf_round *round = r->area;
	struct link there, back;
	struct pipe p = { .r = r };

	net_begin(r);
	links_open(r, &there, 1, 0, 1);
	links_open(r, &back, 1, 1, 0);
	p.send_comm = r->rank == 0 ? there.send : back.send;
	p.recv_comm = r->rank == 0 ? back.recv : there.recv;
	p.send = buffer_new(PERF_POOL, 0);
	p.recv = buffer_new(PERF_POOL, 0);
	p.send_mhandle = memory(r, p.send_comm, p.send.data, p.send.size);
	p.recv_mhandle = memory(r, p.recv_comm, p.recv.data, p.recv.size);
	pattern_fill(p.send.data, p.send.size, r->seed);
	for (int i = 0; i < PERF_SIZES; i++) {
		int times = perf_repeats(perf_sizes[i]);
		double half = timed(&p, ping_pong, perf_sizes[i], times) / 2;
		double each = timed(&p, stream, perf_sizes[i], times);

		if (r->rank == 0) {
			round->us[LATENCY][i] = half;
			round->us[BANDWIDTH][i] = each;
		}
		under(NET_BYTES);
		pattern_check("measured message", p.recv.data, perf_sizes[i], r->seed);
	}
	OK(net_dereg_mr(&r->net, p.send_comm, p.send_mhandle));
	OK(net_dereg_mr(&r->net, p.recv_comm, p.recv_mhandle));
	links_close(r, &there, 1);
	links_close(r, &back, 1);
}

const struct test perf_net = { "perf.net", NET, 2, 2, NET_COMPLETION, "isend and irecv", run, NULL };
