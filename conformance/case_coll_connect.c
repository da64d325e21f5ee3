/* CollNet: devices, connect, and connects that cannot succeed. */
#include <string.h>

#include "case_coll.h"

static void run_small(struct group *g)
{
	group_run(g, &(struct plan){ .func = ABI_ALLGATHER, .bytes = 1000, .window = 4096, .depth = 8 });
}

CASE(coll_properties, "coll.properties", COLL, 2, 2, COLL_PROPERTIES, "devices, and their names beside the net's")
{
	struct abi_props net, coll;
	int ndev = 0, nnet = 0, all[MAX_RANKS];

	if (!r->net.table)
		not_offered("the library has no net, without which NCCL does not take its CollNet");
	OK(net_init(&r->net, r->seed, NULL));
	OK(net_devices(&r->net, &nnet));
	OK(coll_init(&r->coll, r->seed, NULL));
	OK(coll_devices(&r->coll, &ndev));
	EXPECT(ndev >= 0 && ndev < 1024, "devices: expected a number of devices, got %d", ndev);
	exchange(r, &ndev, all, sizeof(ndev));
	EXPECT(all[0] == ndev, "devices: expected the same number on all ranks, got %d on rank 0, %d here", all[0], ndev);
	if (ndev == 0)
		not_offered("CollNet has no device here");
	for (int dev = 0; dev < ndev; dev++) {
		bool found = false;

		OK(coll_properties(&r->coll, dev, &coll));
		EXPECT(coll.name && coll.name[0], "getProperties: expected a name, got none");
		EXPECT(coll.speed > 0, "getProperties: expected a speed above 0, got %d", coll.speed);
		EXPECT(coll.ptr_support & ABI_PTR_HOST, "getProperties: expected host memory in ptrSupport, got %d",
			coll.ptr_support);
		EXPECT(coll.max_coll_bytes > 0, "getProperties: expected maxCollBytes above 0, got 0");
		for (int i = 0; i < nnet && !found; i++) {
			OK(net_properties(&r->net, i, &net));
			found = net.name && strcmp(net.name, coll.name) == 0;
		}
		EXPECT(found, "getProperties: expected the name of a net device, got \"%s\"; net device 0 is \"%s\"",
			coll.name, nnet ? net.name : "");
	}
	group_finalize(r);
}

CASE(coll_arguments, "coll.arguments", COLL, 2, 2, COLL_ARGUMENTS, "devices that are not there")
{
	static const int beyond[] = { 0, 7, 1 << 20 };
	struct abi_props props;
	char handle[ABI_HANDLE_BYTES] = { 0 };
	void *listen = NULL;
	int ndev = 0;

	group_init(r);
	OK(coll_devices(&r->coll, &ndev));
	under(COLL_ARGUMENTS);
	for (int i = 0; i < 3; i++) {
		REFUSED(coll_properties(&r->coll, ndev + beyond[i], &props));
		REFUSED(coll_listen(&r->coll, r->coll.ctx, ndev + beyond[i], handle, &listen));
	}
	REFUSED(coll_properties(&r->coll, -1, &props));
	REFUSED(coll_listen(&r->coll, r->coll.ctx, -1, handle, &listen));
	group_finalize(r);
}

CASE(coll_connect, "coll.connect", COLL, 2, 4, COLL_CONNECT, "one connect a rank, and a window over all of them")
{
	struct group g;

	group_init(r);
	for (int i = 0; i < 3; i++) {
		g = group_open(r);
		run_small(&g);
		group_close(&g);
	}
	group_finalize(r);
}

/* What one rank brings to a connect that cannot succeed everywhere. */
struct attempt {
	char handle[ABI_HANDLE_BYTES], all[MAX_RANKS][ABI_HANDLE_BYTES];
	void *handles[MAX_RANKS], *listen;
};

static void prepare(struct rank *r, struct attempt *a)
{
	memset(a, 0, sizeof(*a));
	OK(coll_listen(&r->coll, r->coll.ctx, r->dev, a->handle, &a->listen));
	exchange(r, a->handle, a->all, sizeof(a->handle));
	for (int i = 0; i < r->ranks; i++)
		a->handles[i] = a->all[i];
}

/* Connects as rank of nranks; the caller does not come at all where it is not. */
static int connect_as(struct rank *r, struct attempt *a, int nranks, int rank, bool come)
{
	enum rule was = under(COLL_VERDICT_TIME);
	void *comm = NULL;
	int result = -1;

	if (come) {
		result = coll_connect(&r->coll, a->handles, nranks, rank, a->listen, &comm);
		EXPECT(result != ABI_SUCCESS || comm, "connect: expected a comm or an error, got success and NULL");
	}
	under(was);
	return result;
}

/* All ranks that called have failed; where either will do, all did the same. */
static void same_verdict(struct rank *r, const char *what, int mine, bool must_fail)
{
	int all[MAX_RANKS], failed = 0, succeeded = 0;

	exchange(r, &mine, all, sizeof(mine));
	for (int i = 0; i < r->ranks; i++) {
		succeeded += all[i] == ABI_SUCCESS;
		failed += all[i] > ABI_SUCCESS;
	}
	under(COLL_VERDICT);
	EXPECT(succeeded == 0 || (!must_fail && failed == 0),
		"%s: expected connect to fail on all ranks%s, got success on %d and an error on %d", what,
		must_fail ? "" : " or on none", succeeded, failed);
	barrier(r);
}

CASE(coll_missing, "coll.rank-missing", COLL, 2, 3, COLL_VERDICT_TIME, "the last rank listens and never connects")
{
	struct attempt a;

	group_init(r);
	prepare(r, &a);
	same_verdict(r, "a rank that never comes", connect_as(r, &a, r->ranks, r->rank, r->rank < r->ranks - 1), true);
}

CASE(coll_refused, "coll.rank-refused", COLL, 2, 3, COLL_VERDICT, "the last rank has closed its listen side")
{
	struct attempt a;

	group_init(r);
	prepare(r, &a);
	if (r->rank == r->ranks - 1)
		OK(coll_close_listen(&r->coll, a.listen));
	barrier(r);
	same_verdict(r, "a rank that went away", connect_as(r, &a, r->ranks, r->rank, r->rank < r->ranks - 1), true);
}

CASE(coll_twice, "coll.rank-twice", COLL, 2, 3, COLL_VERDICT, "two ranks give the same rank number")
{
	struct attempt a;

	group_init(r);
	prepare(r, &a);
	same_verdict(r, "a rank number given twice", connect_as(r, &a, r->ranks, r->rank ? r->rank : 1, true), true);
}

CASE(coll_count, "coll.rank-count", COLL, 3, 3, COLL_VERDICT, "rank 0 counts one rank less than the others")
{
	struct attempt a;

	group_init(r);
	prepare(r, &a);
	same_verdict(r, "two numbers of ranks", connect_as(r, &a, r->rank ? r->ranks : r->ranks - 1, r->rank, true), true);
}

CASE(coll_garbage, "coll.garbage-handle", COLL, 2, 3, COLL_VERDICT, "rank 0 has garbage for the last rank's handle")
{
	struct attempt a;

	group_init(r);
	prepare(r, &a);
	if (r->rank == 0)
		memset(a.all[r->ranks - 1], 0xa5, ABI_HANDLE_BYTES);
	same_verdict(r, "a handle of garbage", connect_as(r, &a, r->ranks, r->rank, true), false);
}

CASE(coll_after, "coll.connect-after-failure", COLL, 2, 2, COLL_CONNECT,
	"a connect that works after one that could not")
{
	struct attempt a;
	struct group g;

	group_init(r);
	prepare(r, &a);
	same_verdict(r, "a rank that never comes", connect_as(r, &a, r->ranks, r->rank, r->rank < r->ranks - 1), true);
	g = group_open(r);
	run_small(&g);
	group_close(&g);
	group_finalize(r);
}
