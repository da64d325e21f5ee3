/* A CollNet comm as NCCL 2.30.7 makes it (recorded): net and CollNet initialised
 * and asked for their devices, then listen, the handles by the bootstrap, one
 * blocking connect, and the listen side closed. */
#include "case_coll.h"

void group_init(struct rank *r)
{
	struct abi_props props;
	int ndev = 0;

	under(COLL_CONNECT);
	if (r->net.table) {
		OK(net_init(&r->net, r->seed, NULL));
		OK(net_devices(&r->net, &ndev));
	}
	OK(coll_init(&r->coll, r->seed, NULL));
	OK(coll_devices(&r->coll, &ndev));
	if (ndev < 1)
		not_offered("CollNet has no device here");
	OK(coll_properties(&r->coll, r->dev, &props));
}

struct group group_open(struct rank *r)
{
	static uint64_t opened;
	char handle[ABI_HANDLE_BYTES] = { 0 }, all[MAX_RANKS][ABI_HANDLE_BYTES];
	void *handles[MAX_RANKS], *listen = NULL;
	struct group g = { .r = r, .key = key_of(r, 77, opened++, 0) };
	enum rule was = under(COLL_CONNECT);

	OK(coll_listen(&r->coll, r->coll.ctx, r->dev, handle, &listen));
	EXPECT(listen, "listen: expected a listening comm, got NULL");
	exchange(r, handle, all, sizeof(handle));
	for (int i = 0; i < r->ranks; i++)
		handles[i] = all[i];
	OK(coll_connect(&r->coll, handles, r->ranks, r->rank, listen, &g.comm));
	EXPECT(g.comm, "connect: expected a comm, got NULL");
	OK(coll_close_listen(&r->coll, listen));
	barrier(r);
	under(was);
	return g;
}

void group_close(struct group *g)
{
	enum rule was = under(COLL_CLOSE);

	OK(coll_close(&g->r->coll, g->comm));
	g->comm = NULL;
	under(was);
}

void group_finalize(struct rank *r)
{
	under(COLL_CLOSE);
	OK(coll_finalize(&r->coll, r->coll.ctx));
	if (r->net.table)
		OK(net_finalize(&r->net, r->net.ctx));
}

bool coll_supports(struct rank *r, int type, int op)
{
	int supported = 0;

	OK(coll_reduce_support(&r->coll, type, op, &supported));
	return supported != 0;
}

void group_run(struct group *g, const struct plan *p)
{
	struct operation *o = operation_new(g, p);
	bool busy = true;

	while (operation_turn(o, &busy))
		breathe(g->r, busy);
	operation_check(o);
	operation_free(o);
}
