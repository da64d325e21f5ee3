/* NCCL crashes when a tuner makes it take a CollNet algorithm for a communicator without a connected
 * CollNet. A communicator's CollNet connects before its tuner is made, so it leaves a note here, and the
 * tuner takes the note: docs/decisions/0014.
 *
 * Two communicators of the same ranks are a pair: an Allgather of the one can run beside a Reduce-Scatter of the
 * other. While the second one connects, all ranks compare what the tuner of the first has been asked. If that is
 * the same everywhere, the first counts as one of a pair from its next operation on: docs/decisions/0036. */
#include <pthread.h>

#include "plugin.h"

struct connected {
	struct connected *next;
	uint64_t comm_id; /* 0: not known */
	int nodes;
	struct coll_made made; /* what it says of pairs may change */
	uint64_t asked; /* a hash of all operations that the tuner has been asked about */
	bool unsure;    /* whether all ranks count it as one of a pair */
	int held;       /* by so many that connect: the tuner waits */
	size_t region;  /* bytes of the largest registration before the claim: NCCL's buffer for windows */
	bool claimed;   /* by a tuner: once in its life */
	bool gone;      /* CollNet is closed, or cannot be used */
	bool closed, released;
	uint64_t windows[NCCL_ALLREDUCE + 1]; /* handed over by NCCL, by ncclFunc_t */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t let_go = PTHREAD_COND_INITIALIZER;
static struct connected *all; /* the newest first */

/* The communicator that this thread initialises has gone on after its CollNet's connect. */
static __thread bool confirmed;

/* connected_add notes that CollNet is connected. NULL: no memory, and so no tuning. */
struct connected *connected_add(uint64_t comm_id, int nodes, const struct coll_made *made)
{
	struct connected *c = calloc(1, sizeof(*c));

	if (c == NULL)
		return NULL;
	c->comm_id = comm_id;
	c->nodes = nodes;
	c->made = *made;
	pthread_mutex_lock(&lock);
	c->next = all;
	all = c;
	pthread_mutex_unlock(&lock);
	return c;
}

/* connected_confirm is called when NCCL asks what CollNet can reduce: it does so once all
 * ranks have connected and registered their buffers. The call names no communicator, but the thread
 * that makes it is the one that then makes the communicator's tuner (ncclCommInitRankFunc of
 * src/init.cc, v2.20.5 to v2.30.7); connect and regMr come from another. */
void connected_confirm(void) { confirmed = true; }

/* connected_confirmed reports whether NCCL has gone on so on this thread since the last tuner. */
bool connected_confirmed(void)
{
	bool was = confirmed;

	confirmed = false;
	return was;
}

/* connected_registered notes a registration before the claim, which is one of NCCL's own buffers. 0 bytes: it
 * failed, and NCCL will not use the connection. */
void connected_registered(struct connected *c, size_t size)
{
	if (c == NULL)
		return;
	pthread_mutex_lock(&lock);
	if (!c->claimed && size == 0)
		c->gone = true;
	else if (!c->claimed && size > c->region)
		c->region = size;
	pthread_mutex_unlock(&lock);
}

/* free_if_done frees a note that nobody has any more. The lock is held. */
static void free_if_done(struct connected *c)
{
	struct connected **at = &all;

	if (!c->closed || (c->claimed && !c->released) || c->held > 0)
		return;
	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	free(c);
}

/* connected_remove notes that CollNet is closed. */
void connected_remove(struct connected *c)
{
	if (c == NULL)
		return;
	pthread_mutex_lock(&lock);
	c->gone = c->closed = true;
	free_if_done(c);
	pthread_mutex_unlock(&lock);
}

/* connected_claim returns the connection of a communicator, or NULL, what its ranks have agreed upon, and
 * the bytes of NCCL's buffer for windows. */
struct connected *connected_claim(uint64_t comm_id, size_t nodes, struct coll_agreed *agreed, size_t *region)
{
	struct connected *c;

	pthread_mutex_lock(&lock);
	for (c = all; c != NULL; c = c->next)
		if (!c->claimed && !c->gone && c->comm_id == comm_id && (size_t)c->nodes == nodes)
			break;
	if (c != NULL) {
		c->claimed = true;
		*agreed = c->made.agreed;
		*region = c->region;
	}
	pthread_mutex_unlock(&lock);
	return c;
}

/* connected_release ends a claim. Nobody else gets it: the connection may outlive its tuner. */
void connected_release(struct connected *c)
{
	if (c == NULL)
		return;
	pthread_mutex_lock(&lock);
	c->released = true;
	free_if_done(c);
	pthread_mutex_unlock(&lock);
}

/* connected_still reports whether a claimed connection lasts. */
bool connected_still(const struct connected *c)
{
	bool still;

	if (c == NULL)
		return false;
	pthread_mutex_lock(&lock);
	still = !c->gone;
	pthread_mutex_unlock(&lock);
	return still;
}

/* connected_hold returns the newest connection of the same ranks as one that is being made, its key, and a hash of what
 * its tuner has been asked; NULL: there is none. It is not asked again before connected_let_go. */
struct connected *connected_hold(uint64_t members, uint64_t *key, uint64_t *asked)
{
	struct connected *c;

	pthread_mutex_lock(&lock);
	for (c = all; c != NULL; c = c->next)
		if (!c->gone && c->made.members == members)
			break;
	if (c != NULL) {
		c->held++;
		*key = c->made.key;
		*asked = c->asked;
	}
	pthread_mutex_unlock(&lock);
	return c;
}

/* connected_let_go ends connected_hold. pair: all ranks know both connections. unsure: some may. */
void connected_let_go(struct connected *c, bool pair, bool unsure)
{
	if (c == NULL)
		return;
	pthread_mutex_lock(&lock);
	c->held--;
	c->made.agreed.paired = c->made.agreed.paired || pair;
	c->unsure = c->unsure || (unsure && !c->made.agreed.paired);
	pthread_cond_broadcast(&let_go);
	free_if_done(c);
	pthread_mutex_unlock(&lock);
}

/* connected_asked notes an operation that the tuner is asked about, and says whether the connection is one of a pair.
 * It fails if ranks may think otherwise: they would wait for each other for ever. The caller has a claim. */
nccl_result connected_asked(struct connected *c, int func, size_t bytes, bool *pair)
{
	bool unsure;

	pthread_mutex_lock(&lock);
	while (c->held > 0)
		pthread_cond_wait(&let_go, &lock);
	c->asked = (c->asked ^ ((uint64_t)bytes << 3 | (uint64_t)func)) * UINT64_C(0x100000001b3) + 1;
	*pair = c->made.agreed.paired;
	unsure = c->unsure;
	pthread_mutex_unlock(&lock);
	if (unsure)
		return plugin_refuse(NCCL_REMOTE_ERROR, "tuner: the connect of another communicator of these ranks failed at its "
			"end, so ranks may choose differently: a warning above says why it failed");
	return NCCL_SUCCESS;
}

/* connected_paired reports whether a connection is one of a pair. The caller has a claim. */
bool connected_paired(struct connected *c)
{
	bool pair;

	pthread_mutex_lock(&lock);
	pair = c->made.agreed.paired;
	pthread_mutex_unlock(&lock);
	return pair;
}

/* connected_window counts a window of an operation, which NCCL's progress thread has posted. */
void connected_window(struct connected *c, int func)
{
	if (c != NULL)
		__atomic_store_n(&c->windows[func], c->windows[func] + 1, __ATOMIC_RELAXED);
}

/* connected_windows returns how many there have been. The caller has a claim. */
uint64_t connected_windows(struct connected *c,
	int func) { return __atomic_load_n(&c->windows[func], __ATOMIC_RELAXED); }
