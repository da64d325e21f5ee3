/* Opening a plugin as NCCL does. */
#ifndef LIBRARY_H
#define LIBRARY_H

#include <stdint.h>

#include "harness.h"

enum { NAME_BYTES = 64 };

/* What a library has: bit N is version N. */
struct probe {
	uint32_t versions[TUNER + 1];	/* by enum kind */
	char name[TUNER + 1][NAME_BYTES];	/* of the newest */
	double load;			/* seconds that dlopen took */
	char error[400];		/* empty: it opened */
};

/* In a process of its own, so that the caller never holds the library; it is
 * killed after timeout seconds. */
void library_probe(struct probe *p, const char *plugin, double timeout);

#endif
