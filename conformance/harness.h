/* What a case is written against. A case runs in freshly forked rank processes
 * that have just opened the plugin; a check that fails ends its process at once,
 * and the others stop at their next barrier or poll, so that no case cleans up
 * after itself, except to test cleaning up. */
#ifndef HARNESS_H
#define HARNESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "abi.h"

enum { MAX_RANKS = 8, MAX_THREADS = 8, EXCHANGE_BYTES = 4096, FLAGS = 64 };

/* Rules. MUST: NCCL breaks without it. SHOULD: advice, fails only --strict. */
enum level { MUST, SHOULD };

#define RULE(id, name, level, why) id,
enum rule {
#include "rules_net.h"
#include "rules_coll.h"
	RULES
};
#undef RULE

struct rule_text {
	const char *name;
	enum level level;
	const char *why;
};

extern const struct rule_text rules[RULES];

/* Properties hold this in each byte before a plugin fills them in. */
enum { PROPS_POISON = 0x5a };

/* The plugin's calls in the harness's own shape, in which the functions below have them, too.
 * abi_vN.c translates version N to it, as NCCL itself does. */
struct abi_props {
	ABI_PROPS_V9(struct { int ndevs; })
	int max_multi_request_size;
	int16_t rail_id;
	int16_t plane_id;
};

struct net_calls {
	ABI_NET_V11(struct abi_props, void)
	bool contexts;			/* finalize ends what init began */
	bool profiles;			/* init brings a profiler, isend and irecv a handle for it */
	bool resets_request;		/* *request is NULL when irecv is called, whatever it held */
	int max_vdevice;		/* devices that one may be made of */
};

struct coll_calls {
	ABI_COLL_V11(struct abi_props, void)
	bool contexts;
};

struct tuner_calls {
	ABI_TUNER_V5
	int (*choose)(void *ctx, int func, size_t bytes, int collnet, int nvls, int pipe_ops,
		int *algo, int *proto, int *channels);	/* instead of get_info; else NULL */
	int (*get_chunk_size)(void *ctx, int func, size_t bytes, int algo, int proto, int channels,
		size_t *chunk);		/* or NULL */
};

/* The plugin as this process loaded it: one version of each interface, or NULL in table where the
 * library lacks that version. */
struct net {
	const struct version *version;	/* library.h */
	const void *table;
	const char *name;
	struct net_calls calls;
	void *ctx;			/* of the last net_init, if there are contexts */
	abi_profile *profile;		/* that net_init gives; NULL: one that wants no event */
};

struct coll {
	const struct version *version;
	const void *table;
	const char *name;
	struct coll_calls calls;
	void *ctx;
};

struct tuner {
	const struct version *version;
	const void *table;
	const char *name;
	struct tuner_calls calls;
};

struct options;				/* cli.h */
struct board;				/* board.h */

struct rank {
	int rank;
	int ranks;
	uint64_t seed;
	double timeout;			/* seconds that the case may take */
	int dev;			/* --dev, or 0 */
	const struct options *options;
	struct board *board;
	struct net net;
	struct coll coll;
	struct tuner tuner;
	void *library;			/* of dlopen */
	const char *plugin;		/* path or name */
	void *area;			/* memory shared with the runner, NULL in conformance runs */
};

enum kind { NET, COLL, TUNER };

struct test {
	const char *name;		/* "net.bytes" */
	enum kind kind;
	int min_ranks, max_ranks;	/* without --ranks: run with each count between */
	enum rule rule;			/* a crash or a hang counts against it, unless under() names another */
	const char *what;		/* for --list */
	void (*run)(struct rank *r);
	struct test *next;
};

/* CASE(net_bytes, "net.bytes", NET, 2, 2, NET_BYTES, "every byte arrives") { ... r ... } */
#define CASE(id, name, kind, min, max, rule, what) \
	static void case_##id(struct rank *r); \
	static struct test test_##id = { name, kind, min, max, rule, what, case_##id, NULL }; \
	__attribute__((constructor)) static void register_##id(void) { test_register(&test_##id); } \
	static void case_##id(struct rank *r)

void test_register(struct test *test);

/* Verdicts. under() names the rule that the calling thread's checks, calls that
 * crash and calls that hang count against from here on, marks it as checked and
 * returns the one before. EXPECT's message says "expected ..., got ...". */
enum rule under(enum rule rule);
/* The rule that polling without end counts against; RULES: the one of under().
 * A call that does not return always counts against the rule of under(). */
enum rule polling(enum rule rule);

#define EXPECT(cond, ...) ((cond) ? (void)0 : verdict_fail(__FILE__, __LINE__, __VA_ARGS__))
#define EXPECT_RULE(id, cond, ...) \
	do { enum rule was_ = under(id); EXPECT(cond, __VA_ARGS__); under(was_); } while (0)
/* The result of a call of the plugin is success. */
#define OK(call) verdict_ok(__FILE__, __LINE__, #call, call)
/* The result is an error, any error. */
#define REFUSED(call) verdict_refused(__FILE__, __LINE__, #call, call)

/* Under a SHOULD rule, verdict_fail notes the failure and returns. */
void verdict_fail(const char *file, int line, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void verdict_ok(const char *file, int line, const char *call, int result);
void verdict_refused(const char *file, int line, const char *call, int result);
/* Ends the case as "not offered" on all ranks: never a pass, never a failure. */
void not_offered(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
/* A few words behind the result, of rank 0. */
void note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
const char *result_name(int result);

/* Ranks among themselves, over shared memory and without the plugin. All of
 * these end the process when another rank has failed. */
void barrier(struct rank *r);
/* all[i] = what rank i gave; at most EXCHANGE_BYTES each. NCCL's bootstrap. */
void exchange(struct rank *r, const void *mine, void *all, size_t bytes);
void flag_raise(struct rank *r, int flag, uint64_t value);	/* flag < FLAGS, 0 at first */
uint64_t flag_read(struct rank *r, int flag);
void flag_wait(struct rank *r, int flag, uint64_t at_least);
/* One turn of a polling loop: yields when nothing was done, stops when told. */
void breathe(struct rank *r, bool busy);
double now(void);			/* seconds, monotonic */
/* This rank dies of SIGKILL here, and that is no failure of the plugin. */
void die(struct rank *r) __attribute__((noreturn));
/* Threads of a rank. index is 1 to MAX_THREADS - 1; join ends with all of them. */
void thread_start(struct rank *r, int index, void (*run)(struct rank *r, void *arg), void *arg);
void thread_join_all(struct rank *r);

/* Data that says where it belongs: byte i of the stream that key names. */
uint64_t key_of(struct rank *r, uint64_t a, uint64_t b, uint64_t c);
void pattern_fill(void *data, size_t bytes, uint64_t key);
void pattern_check(const char *what, const void *data, size_t bytes, uint64_t key);	/* or fails */

/* Memory with guard bytes on both sides, page aligned plus offset. Filled with
 * the guard byte. guards_check fails under rule if a byte outside data[0, used)
 * changed; at most size bytes were usable. */
struct buffer {
	unsigned char *data;
	size_t size;
	unsigned char *base;
	size_t total;
};

struct buffer buffer_new(size_t size, size_t offset);
void buffer_free(struct buffer *b);
void buffer_reset(struct buffer *b);
void guards_check(const char *what, enum rule rule, const struct buffer *b, size_t used);
/* data[at, at + bytes) still holds the guard byte. */
void untouched_check(const char *what, enum rule rule, const struct buffer *b, size_t at, size_t bytes);

/* Loading, for the cases that do it again. library_open fails the case; the
 * runner has called it once, with abi from the run. */
void library_open(struct rank *r, enum kind kind, int abi);
void library_close(struct rank *r);

/* The plugin. Each logs itself for the report of a crash or hang, sends *request in as given, and
 * sends setNetAttr, where there is one, ahead of connect and accept. Result: ABI_*. */
int net_init(struct net *n, uint64_t id, void **ctx);	/* ctx may be NULL: only n->ctx */
int net_finalize(struct net *n, void *ctx);		/* without contexts: nothing, success */
int net_devices(struct net *n, int *ndev);
int net_properties(struct net *n, int dev, struct abi_props *props);
int net_listen(struct net *n, void *ctx, int dev, void *handle, void **listen);
int net_connect(struct net *n, void *ctx, int dev, void *handle, void **send);
int net_accept(struct net *n, void *ctx, void *listen, void **recv);
int net_reg_mr(struct net *n, void *comm, void *data, size_t size, int type, void **mhandle);
int net_dereg_mr(struct net *n, void *comm, void *mhandle);
int net_isend(struct net *n, void *comm, void *data, size_t size, int tag, void *mhandle, void *phandle,
	void **request);
int net_irecv(struct net *n, void *comm, int count, void **data, size_t *sizes, int *tags,
	void **mhandles, void **phandles, void **request);
int net_iflush(struct net *n, void *comm, int count, void **data, int *sizes, void **mhandles, void **request);
int net_test(struct net *n, void *request, int *done, int *sizes);
/* As NCCL does after each receive that test said is done: nothing where NULL. */
int net_consumed(struct net *n, void *comm, int count, void *request);
int net_set_attr(struct net *n, void *ctx, struct abi_attr *attr);
int net_close_send(struct net *n, void *comm);
int net_close_recv(struct net *n, void *comm);
int net_close_listen(struct net *n, void *comm);

int coll_init(struct coll *c, uint64_t id, void **ctx);
int coll_finalize(struct coll *c, void *ctx);
int coll_devices(struct coll *c, int *ndev);
int coll_properties(struct coll *c, int dev, struct abi_props *props);
int coll_listen(struct coll *c, void *ctx, int dev, void *handle, void **listen);
int coll_connect(struct coll *c, void **handles, int nranks, int rank, void *listen, void **comm);
int coll_reduce_support(struct coll *c, int type, int op, int *supported);
int coll_reg_mr(struct coll *c, void *comm, void *data, size_t size, int type, void **mhandle);
int coll_dereg_mr(struct coll *c, void *comm, void *mhandle);
int coll_iallreduce(struct coll *c, void *comm, void *send, void *recv, size_t count, int type, int op,
	void *send_mhandle, void *recv_mhandle, void **request);
int coll_iallgather(struct coll *c, void *comm, void *send, int n, struct abi_part *parts,
	size_t bytes_per_rank, size_t window_offset, size_t window_bytes, void *send_mhandle, void **request);
int coll_ireduce_scatter(struct coll *c, void *comm, int n, struct abi_part *parts, void *recv,
	size_t bytes_per_rank, size_t window_offset, size_t window_bytes, int type, int op,
	void *recv_mhandle, void **request);
int coll_iflush(struct coll *c, void *comm, void *data, int size, void *mhandle, void **request);
int coll_test(struct coll *c, void *request, int *done, int *size);
int coll_close(struct coll *c, void *comm);
int coll_close_listen(struct coll *c, void *comm);

/* costs is a table of algos x protos floats. Where a tuner names one choice,
 * cost 0 is written there unless the entry is ABI_COST_IGNORE, as NCCL does. */
int tuner_init(struct tuner *t, uint64_t id, size_t nranks, size_t nnodes, void **ctx);
int tuner_info(struct tuner *t, void *ctx, int func, size_t bytes, int collnet, int nvls, int pipe_ops,
	float *costs, int algos, int protos, int registered, int *channels);
int tuner_chunk(struct tuner *t, void *ctx, int func, size_t bytes, int algo, int proto, int channels,
	size_t *chunk);			/* NULL: nothing, success */
int tuner_destroy(struct tuner *t, void *ctx);

#endif
