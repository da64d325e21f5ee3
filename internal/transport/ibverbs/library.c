#include "library.h"

#include <dlfcn.h>

#define POINTER(result, name, args) result(*p_##name) args;
VERBS(POINTER)
OPTIONAL(POINTER)

const char *rdma_load(const char *library)
{
	void *lib = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		return dlerror();
#define FIND(result, name, args)                                                                                         \
	if (!(*(void **)&p_##name = dlsym(lib, #name)))                                                                       \
		return dlerror();
	VERBS(FIND)
#define LOOK(result, name, args) *(void **)&p_##name = dlsym(lib, #name);
	OPTIONAL(LOOK)
	return NULL;
}
