/* Perf mode: which sizes are measured, and how often. */
#include "perf.h"

const size_t perf_sizes[PERF_SIZES] = {
	1, 8, 64, 512, 4096, 32768, 65536, 262144, 1 << 20, 4 << 20, 16 << 20, 64 << 20,
};

int perf_repeats(size_t bytes)
{
	size_t n = ((size_t)64 << 20) / (bytes + 1);

	return n > 1000 ? 1000 : n < 16 ? 16 : (int)n;
}
