#include "library.h"

#include <dlfcn.h>

#define POINTER(result, name, args) result(*p_##name) args;
VERBS(POINTER)
OPTIONAL(POINTER)
CM(POINTER)

#define FIND(result, name, args)                                                                                     \
	if (!(*(void **)&p_##name = dlsym(lib, #name)))                                                                   \
		return dlerror();
#define LOOK(result, name, args) *(void **)&p_##name = dlsym(lib, #name);

const char *rdma_load(const char *library)
{
	void *lib = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		return dlerror();
	VERBS(FIND)
	OPTIONAL(LOOK)
	return NULL;
}

const char *rdma_load_cm(const char *library)
{
	void *lib = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		return dlerror();
	CM(FIND)
	return NULL;
}
