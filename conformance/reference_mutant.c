/* Mutants: REFERENCE_MUTANT=name makes the plugin break exactly one rule, so
 * that the harness can be seen to catch it. The file MUTANTS lists the names. */
#include <stdlib.h>
#include <string.h>

#include "reference.h"

bool mutant(const char *name)
{
	const char *wanted = getenv("REFERENCE_MUTANT");

	return wanted && strcmp(wanted, name) == 0;
}
