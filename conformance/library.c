/* NCCL tries the name as it stands, then libnccl-net-NAME.so (2.30.7,
 * src/plugin/plugin_open.cc), with RTLD_NOW | RTLD_LOCAL. */
#include <dlfcn.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "board.h"
#include "cli.h"
#include "library.h"

static struct version *versions;	/* the oldest first */

void version_register(struct version *v)
{
	struct version **at = &versions;

	while (*at && (*at)->number < v->number)
		at = &(*at)->next;
	v->next = *at;
	*at = v;
}

uint32_t versions_known(enum kind kind)
{
	uint32_t known = 0;

	for (const struct version *v = versions; v; v = v->next)
		if (v->kind == kind)
			known |= 1u << v->number;
	return known;
}

int newest(uint32_t of) { return of ? 31 - __builtin_clz(of) : 0; }

uint32_t versions_asked(const struct options *o, uint32_t has)
{
	uint32_t oldest = has & -has, last = has & 1u << newest(has);

	if (!o->abis)
		return has;
	return (o->abis & has) | (o->abis & ABI_OLDEST ? oldest : 0) | (o->abis & ABI_NEWEST ? last : 0) |
		(o->abis & ABI_BETWEEN ? has & ~oldest & ~last : 0);
}

static void *open_either(const char *plugin, char *error, size_t bytes)
{
	char name[4096];
	void *library = dlopen(plugin, RTLD_NOW | RTLD_LOCAL);

	if (library)
		return library;
	snprintf(error, bytes, "%s", dlerror());
	if (strchr(plugin, '/'))
		return NULL;
	snprintf(name, sizeof(name), "libnccl-net-%s.so", plugin);
	library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		snprintf(error, bytes, "%s", dlerror());
	return library;
}

/* Each table of NCCL's begins with the name. */
static const char *name_of(const void *t) { return *(const char *const *)t; }

/* The version itself for the kind under test; for the others the same one if it
 * is there, else the newest. NULL, and all set to nothing, if there is none. */
static const struct version *choose(void *library, enum kind kind, enum kind tested, int abi,
	const void **table, const char **name, void *calls)
{
	const struct version *chosen = NULL;

	for (const struct version *v = versions; v; v = v->next)
		if (v->kind == kind && dlsym(library, v->symbol) && (kind == tested ? v->number == abi :
				!chosen || chosen->number != abi))
			chosen = v;
	*table = chosen ? dlsym(library, chosen->symbol) : NULL;
	*name = *table ? name_of(*table) : NULL;
	if (chosen)
		chosen->read(calls, *table);
	return chosen;
}

void library_open(struct rank *r, enum kind kind, int abi)
{
	char error[TEXT_BYTES - 100] = "";
	enum rule was = under(NET_LOAD);

	call_begin("dlopen()", 0, 0, 0);
	r->library = open_either(r->plugin, error, sizeof(error));
	call_end(0);
	EXPECT(r->library, "expected the library to open, got: %s", error);
	r->net.version = choose(r->library, NET, kind, abi, &r->net.table, &r->net.name, &r->net.calls);
	r->coll.version = choose(r->library, COLL, kind, abi, &r->coll.table, &r->coll.name, &r->coll.calls);
	r->tuner.version = choose(r->library, TUNER, kind, abi, &r->tuner.table, &r->tuner.name, &r->tuner.calls);
	under(was);
}

void library_close(struct rank *r)
{
	call_begin("dlclose()", 0, 0, 0);
	dlclose(r->library);
	call_end(0);
	r->library = NULL;
	memset(&r->net, 0, sizeof(r->net));
	memset(&r->coll, 0, sizeof(r->coll));
	memset(&r->tuner, 0, sizeof(r->tuner));
}

static void look(struct probe *p, const char *plugin)
{
	double start = now();
	void *library = open_either(plugin, p->error, sizeof(p->error));

	p->load = now() - start;
	if (!library)
		return;
	p->error[0] = 0;
	for (const struct version *v = versions; v; v = v->next) {
		const void *t = dlsym(library, v->symbol);

		if (!t)
			continue;
		p->versions[v->kind] |= 1u << v->number;
		snprintf(p->name[v->kind], NAME_BYTES, "%s", name_of(t) ? name_of(t) : "(no name)");
	}
}

/* waitpid that kills after so many seconds. */
static int wait_for(pid_t child, double seconds, int *status)
{
	double end = now() + seconds;
	pid_t got;

	while ((got = waitpid(child, status, WNOHANG)) == 0) {
		if (now() > end)
			kill(child, SIGKILL);
		usleep(500);
	}
	return got == child ? 0 : -1;
}

void library_probe(struct probe *p, const char *plugin, double timeout)
{
	struct probe *shared = mmap(NULL, sizeof(*p), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	double start = now();
	int status = 0;
	pid_t child;

	memset(p, 0, sizeof(*p));
	if (shared == MAP_FAILED) {
		snprintf(p->error, sizeof(p->error), "no shared memory");
		return;
	}
	fflush(NULL);
	child = fork();
	if (child == 0) {
		look(shared, plugin);
		_exit(0);
	}
	if (child < 0 || wait_for(child, timeout, &status) < 0)
		snprintf(shared->error, sizeof(shared->error), "no process to open it in");
	else if (WIFSIGNALED(status))
		snprintf(shared->error, sizeof(shared->error), "opening %s ended with %s after %.1f s", plugin,
			strsignal(WTERMSIG(status)), now() - start);
	*p = *shared;
	munmap(shared, sizeof(*p));
}
