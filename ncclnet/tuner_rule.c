/* Which operations CollNet is to have: docs/decisions/0036. NCCL hands an operation over as
 * windows in the order of ranks' slots, few at once. While a rank has none of its windows in flight one
 * direction of its link idles, so an operation that is not in flight as a whole takes N/(N-1) of the time
 * of NCCL's rings, and a Reduce-Scatter without a switch more than twice that. What idles serves an operation of the
 * other kind, which NCCL runs beside it only on another communicator.
 *
 * Where multicast does not reach all ranks, Allgathers go round a ring here, too, and there is nothing to
 * gain by either.
 *
 * All ranks must choose alike: the rule looks only at facts that are the same on all of them. */
#include "plugin.h"

enum need {
	SWITCH,     /* a switch answers, and the communicator is one of a pair. With several GPUs a node each GPU has
		     * a connection of its own. These cannot agree on the moment from which they are pairs: so none is needed */
	REGISTERED, /* the user has registered the buffers, and NCCL hands over them whole */
	WHOLE,      /* all windows of the operation are in flight at once */
	TWO_NODES,  /* that, on two nodes of several GPUs: between two there is nothing for a switch to sum */
};

/* From how many bytes on, of all ranks together, CollNet wins where the row's need is met. */
static const struct rule {
	int func;
	enum need need;
	size_t from;
} rules[] = {
	{ NCCL_REDUCE_SCATTER, SWITCH, 8 << 20 },
	{ NCCL_REDUCE_SCATTER, REGISTERED, 4 << 20 },
	{ NCCL_ALLGATHER, SWITCH, 8 << 20 }, /* a Reduce-Scatter beside it leaves it the receiving sides */
	{ NCCL_ALLGATHER, REGISTERED, 4 << 20 },
	{ NCCL_ALLGATHER, WHOLE, 8 << 20 },
	{ NCCL_REDUCE_SCATTER, TWO_NODES, 8 << 20 },
};

/* On fewer nodes no row holds if each node has one GPU: on two nodes a ring sends each byte once, too
 * (2 - 2/P is 1). With K GPUs a node a ring passes P-1 shards over each link and CollNet P-K. So on two nodes
 * with several GPUs CollNet wins for operations that are in flight as a whole. */
enum { LEAST_NODES = 3 };

/* wide reports whether a row may hold on so many nodes. */
static bool wide(const struct tuner_facts *f, enum need need)
{
	return f->nodes >= LEAST_NODES || (f->several && (need == WHOLE || need == TWO_NODES));
}

/* An Allreduce, which NCCL takes to CollNet by its own costs, is cut into windows of both kinds: with a switch it needs
 * no pair. Up to so many bytes it is as fast there as over rings, or faster, where nothing of that is there. */
static const size_t allreduce_most = 256 << 10;

static bool holds(const struct tuner_facts *f, enum need need, size_t bytes, bool registered)
{
	switch (need) {
	case SWITCH:
		return f->agreed.switched && (f->agreed.paired || f->several);
	case REGISTERED:
		return f->agreed.direct && registered;
	case WHOLE:
		return f->chunks && bytes <= f->inflight;
	case TWO_NODES:
		return f->several && f->nodes == 2 && f->chunks && bytes <= f->inflight;
	}
	return false;
}

/* wins reports whether a row holds for an operation. */
static bool wins(const struct tuner_facts *f, const struct rule *r, int func, size_t bytes, bool registered)
{
	return f->agreed.multicast && wide(f, r->need) && r->func == func && bytes >= r->from &&
		holds(f, r->need, bytes, registered);
}

bool tuner_wins(const struct tuner_facts *f, int func, size_t bytes, bool registered)
{
	if (func != NCCL_ALLGATHER && func != NCCL_REDUCE_SCATTER)
		return false;
	if (f->from[func] >= 0)
		return f->from[func] > 0 && bytes >= (size_t)f->from[func];
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
		if (wins(f, &rules[i], func, bytes, registered))
			return true;
	return false;
}

/* tuner_loses reports whether NCCL is to be kept from taking CollNet by itself. */
bool tuner_loses(const struct tuner_facts *f, int func, size_t bytes, bool registered)
{
	if (func == NCCL_ALLREDUCE && !f->agreed.multicast)
		return true;
	if (func == NCCL_ALLREDUCE)
		return bytes > allreduce_most && !f->agreed.switched && !holds(f, REGISTERED, bytes, registered);
	return (func == NCCL_ALLGATHER || func == NCCL_REDUCE_SCATTER) && !tuner_wins(f, func, bytes, registered);
}

/* tuner_in_flight returns up to how many bytes CollNet is taken. 0: there is no bound. Only a row for operations that
 * are in flight as a whole has one. */
size_t tuner_in_flight(const struct tuner_facts *f, int func)
{
	return tuner_from(f, func) > 0 && !tuner_wins(f, func, SIZE_MAX, false) ? f->inflight : 0;
}

/* tuner_from returns from how many bytes on CollNet is taken where buffers are not registered; 0: never. */
size_t tuner_from(const struct tuner_facts *f, int func)
{
	size_t from = 0;

	if (f->from[func] >= 0)
		return (size_t)f->from[func];
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
		if (wins(f, &rules[i], func, rules[i].from, false) && (from == 0 || rules[i].from < from))
			from = rules[i].from;
	return from;
}

static const char *const names[] = { [NCCL_ALLGATHER] = "Allgather", [NCCL_REDUCE_SCATTER] = "Reduce-Scatter" };

/* say tells one row of the table, and whether it counts here. */
static void say(const struct tuner_facts *f, const struct rule *r)
{
	const char *name = names[r->func];

	switch (r->need) {
	case SWITCH:
		INFO("tuner: %ss of %zu bytes or more in total go through CollNet where a switch answers (%s)%s%s", name, r->from,
			f->agreed.switched ? "it does" : "none does",
			f->several ? "" : " and another communicator of the same ranks has CollNet",
			f->several ? "" : f->agreed.paired ? " (one has)" : " (none has yet)");
		break;
	case REGISTERED:
		INFO("tuner: %ss of %zu bytes or more in total go through CollNet where buffers are registered: %s", name, r->from,
			f->agreed.direct ? "they may be" : "MCAST_GPU_MEMORY=host leaves none");
		break;
	case TWO_NODES:
		if (!f->several || f->nodes != 2)
			break;
		/* fall through */
	case WHOLE:
		if (f->chunks)
			INFO("tuner: %ss of %zu to %zu bytes in total go through CollNet: NCCL has them in flight as a whole", name, r->from,
				f->inflight);
		else
			INFO("tuner: %ss of any size stay with NCCL otherwise: before 2.30 it has no operation in flight as a whole", name);
		break;
	}
}

/* tuner_say_rule writes the table to the log, with what counts here. alone: one GPU a node. */
void tuner_say_rule(const struct tuner_facts *f, bool alone)
{
	if (!f->agreed.multicast)
		INFO("tuner: nothing goes through CollNet by itself: multicast does not reach all ranks, or MCAST_MULTICAST=off");
	else if (alone && tuner_loses(f, NCCL_ALLREDUCE, allreduce_most + 1, false))
		INFO("tuner: Allreduces of more than %zu bytes do not go through CollNet: no switch answers", allreduce_most);
	if (f->nodes < LEAST_NODES && !f->several)
		INFO("tuner: Allgathers and Reduce-Scatters do not go through CollNet by themselves: on %zu nodes there is nothing "
			"to gain", f->nodes);
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]) && f->agreed.multicast; i++)
		if (f->from[rules[i].func] < 0 && wide(f, rules[i].need))
			say(f, &rules[i]);
	for (int func = NCCL_ALLGATHER; func <= NCCL_REDUCE_SCATTER; func++)
		if (f->from[func] == 0)
			INFO("tuner: %ss do not go through CollNet: the setting is 0", names[func]);
		else if (f->from[func] > 0)
			INFO("tuner: %ss of %lld bytes or more in total go through CollNet, as set", names[func], f->from[func]);
}
