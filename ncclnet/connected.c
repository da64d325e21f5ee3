/* NCCL crashes when a tuner makes it take a CollNet algorithm for a communicator whose
 * CollNet is not connected. A communicator's CollNet connects before its tuner is
 * made, so a tuner takes what it finds here; until v11 NCCL gives neither of them a
 * name, and then a tuner claims a connection among as many nodes as its own that no other tuner has.
 */
#include <pthread.h>

#include "plugin.h"

struct connected {
	struct connected *next;
	uint64_t comm_id; /* 0: not known */
	int nodes;
	bool claimed, gone;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct connected *all;

/* connected_add notes that CollNet is connected. NULL: no memory, and so no tuning. */
struct connected *connected_add(uint64_t comm_id, int nodes)
{
	struct connected *c = calloc(1, sizeof(*c));

	if (c == NULL)
		return NULL;
	c->comm_id = comm_id;
	c->nodes = nodes;
	pthread_mutex_lock(&lock);
	c->next = all;
	all = c;
	pthread_mutex_unlock(&lock);
	return c;
}

static void unlink_and_free(struct connected *c)
{
	struct connected **at = &all;

	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	free(c);
}

/* connected_remove notes that it is connected no more. */
void connected_remove(struct connected *c)
{
	if (c == NULL)
		return;
	pthread_mutex_lock(&lock);
	c->gone = true;
	if (!c->claimed)
		unlink_and_free(c);
	pthread_mutex_unlock(&lock);
}

/* connected_claim returns the connection of a communicator, or NULL. */
struct connected *connected_claim(uint64_t comm_id, size_t nodes)
{
	struct connected *c;

	pthread_mutex_lock(&lock);
	for (c = all; c != NULL; c = c->next)
		if (!c->claimed && !c->gone && c->comm_id == comm_id && (size_t)c->nodes == nodes)
			break;
	if (c != NULL)
		c->claimed = true;
	pthread_mutex_unlock(&lock);
	return c;
}

/* connected_release ends a claim. */
void connected_release(struct connected *c)
{
	if (c == NULL)
		return;
	pthread_mutex_lock(&lock);
	c->claimed = false;
	if (c->gone)
		unlink_and_free(c);
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
