/* Opening a plugin as NCCL does. */
#ifndef LIBRARY_H
#define LIBRARY_H

#include <stdint.h>

#include "harness.h"

enum { NAME_BYTES = 64 };

/* A version of an interface. Each abi_vN.c declares its own: see VERSION in version.h. */
struct version {
	enum kind kind;
	int number;
	const char *symbol;		/* that holds the plugin's table */
	void (*read)(void *calls, const void *table);	/* fills in struct net_calls or the like */
	struct version *next;
};

void version_register(struct version *v);

/* The versions that the harness knows: bit N is version N. */
uint32_t versions_known(enum kind kind);
/* The versions that --abi asks for, out of the ones that a library has. */
uint32_t versions_asked(const struct options *o, uint32_t has);
int newest(uint32_t versions);		/* 0: there is none */

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
