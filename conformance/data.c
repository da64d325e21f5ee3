/* Deterministic data, and memory that shows who wrote beside it. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "harness.h"

enum { GUARD = 0xc5, GUARD_BYTES = 4096 };

/* splitmix64, Steele, Lea and Flood, 2014. */
static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

uint64_t key_of(struct rank *r, uint64_t a, uint64_t b, uint64_t c)
{
	return mix(mix(mix(mix(r->seed) ^ a) ^ b) ^ c);
}

/* One mix covers 8 bytes; the words of a key are a walk of their own. */
static uint64_t word(uint64_t key, size_t i)
{
	return (key + i) * 0x9e3779b97f4a7c15u ^ (key >> 17);
}

void pattern_fill(void *data, size_t bytes, uint64_t key)
{
	unsigned char *p = data;
	size_t i;
	uint64_t w;

	for (i = 0; i + 8 <= bytes; i += 8) {
		w = word(key, i / 8);
		memcpy(p + i, &w, 8);
	}
	w = word(key, i / 8);
	memcpy(p + i, &w, bytes - i);
}

void pattern_check(const char *what, const void *data, size_t bytes, uint64_t key)
{
	const unsigned char *p = data;
	uint64_t want;

	for (size_t i = 0; i < bytes; i += 8) {
		size_t n = bytes - i < 8 ? bytes - i : 8;

		want = word(key, i / 8);
		if (memcmp(p + i, &want, n) == 0)
			continue;
		while (((unsigned char *)&want)[i % 8] == p[i])
			i++;
		EXPECT(false, "%s: expected byte %zu of %zu to be 0x%02x, got 0x%02x", what, i, bytes,
			((unsigned char *)&want)[i % 8], p[i]);
		return;
	}
}

struct buffer buffer_new(size_t size, size_t offset)
{
	struct buffer b = { .size = size };

	b.total = (GUARD_BYTES + offset + size + GUARD_BYTES + 4095) / 4096 * 4096;
	b.base = mmap(NULL, b.total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (b.base == MAP_FAILED) {
		perror("nccl-net-conformance: memory");
		abort();
	}
	b.data = b.base + GUARD_BYTES + offset;
	buffer_reset(&b);
	return b;
}

void buffer_reset(struct buffer *b) { memset(b->base, GUARD, b->total); }

void buffer_free(struct buffer *b)
{
	munmap(b->base, b->total);
	memset(b, 0, sizeof(*b));
}

/* The first byte in [from, to) that is not the guard, or to. */
static size_t first_touched(const unsigned char *base, size_t from, size_t to)
{
	while (from < to && base[from] == GUARD)
		from++;
	return from;
}

void guards_check(const char *what, enum rule rule, const struct buffer *b, size_t used)
{
	enum rule was = under(rule);
	size_t data = (size_t)(b->data - b->base);
	size_t at = first_touched(b->base, 0, data);

	EXPECT(at == data, "%s: expected nothing written ahead of the message, got a byte at -%zu", what, data - at);
	at = first_touched(b->base, data + used, b->total);
	EXPECT(at == b->total, "%s: expected %zu bytes written, got a byte at %zu", what, used, at - data);
	under(was);
}

void untouched_check(const char *what, enum rule rule, const struct buffer *b, size_t at, size_t bytes)
{
	enum rule was = under(rule);
	size_t from = (size_t)(b->data - b->base) + at;
	size_t first = first_touched(b->base, from, from + bytes);

	EXPECT(first == from + bytes, "%s: expected byte %zu untouched, got it written", what, first - from + at);
	under(was);
}
