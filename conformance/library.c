/* NCCL tries the name as it stands, then libnccl-net-NAME.so (2.30.7,
 * src/plugin/plugin_open.cc), with RTLD_NOW | RTLD_LOCAL. */
#include <dlfcn.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "board.h"
#include "library.h"

enum { FIRST_NET = 8, LAST_NET = 12, FIRST_TUNER = 2, LAST_TUNER = 6 };

static const char *const symbols[] = { "ncclNetPlugin_v%d", "ncclCollNetPlugin_v%d", "ncclTunerPlugin_v%d" };

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

static const void *table(void *library, enum kind kind, int abi)
{
	char symbol[NAME_BYTES];

	snprintf(symbol, sizeof(symbol), symbols[kind], abi);
	return dlsym(library, symbol);
}

static int first(enum kind kind) { return kind == TUNER ? FIRST_TUNER : FIRST_NET; }
static int last(enum kind kind) { return kind == TUNER ? LAST_TUNER : LAST_NET; }

/* The version itself for the kind under test; for the others the same one if it
 * is there, else the newest. */
static const void *choose(struct rank *r, enum kind kind, enum kind tested, int abi, int *got)
{
	const void *t = abi >= first(kind) && abi <= last(kind) ? table(r->library, kind, abi) : NULL;

	*got = abi;
	for (int v = last(kind); !t && kind != tested && v >= first(kind); v--) {
		t = table(r->library, kind, v);
		*got = v;
	}
	return t;
}

/* Each table of NCCL's begins with the name. */
static const char *name_of(const void *t) { return t ? *(const char *const *)t : NULL; }

void library_open(struct rank *r, enum kind kind, int abi)
{
	char error[TEXT_BYTES - 100] = "";
	enum rule was = under(NET_LOAD);

	call_begin("dlopen()", 0, 0, 0);
	r->library = open_either(r->plugin, error, sizeof(error));
	call_end(0);
	EXPECT(r->library, "expected the library to open, got: %s", error);
	r->net.table = choose(r, NET, kind, abi, &r->net.abi);
	r->coll.table = choose(r, COLL, kind, abi, &r->coll.abi);
	r->tuner.table = choose(r, TUNER, kind, abi, &r->tuner.abi);
	r->net.name = name_of(r->net.table);
	r->coll.name = name_of(r->coll.table);
	r->tuner.name = name_of(r->tuner.table);
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
	for (int kind = NET; kind <= TUNER; kind++)
		for (int v = first(kind); v <= last(kind); v++) {
			const void *t = table(library, kind, v);

			if (!t)
				continue;
			p->versions[kind] |= 1u << v;
			snprintf(p->name[kind], NAME_BYTES, "%s", name_of(t) ? name_of(t) : "(no name)");
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
