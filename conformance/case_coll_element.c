/* Elements of NCCL's types, and inputs with exact sums, products, minima and
 * maxima in all types: small integers. Even the narrowest type (f8 with two
 * bits of fraction) holds all integers up to 8. */
#include <math.h>
#include <string.h>

#include "case_coll.h"

size_t type_size(int type)
{
	static const size_t size[ABI_TYPES] = { 1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1 };

	return size[type];
}

const char *type_name(int type)
{
	static const char *const name[ABI_TYPES] = {
		"int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
		"bfloat16", "float8e4m3", "float8e5m2",
	};

	return name[type];
}

const char *op_name(int op)
{
	static const char *const name[ABI_OPS] = { "sum", "prod", "max", "min", "avg" };

	return name[op];
}

/* A float of the given widths, for values that it holds exactly and that are
 * normal in it. */
static unsigned narrow(double value, int exponent_bits, int fraction_bits)
{
	int exponent, bias = (1 << (exponent_bits - 1)) - 1;
	unsigned sign = signbit(value) ? 1u << (exponent_bits + fraction_bits) : 0;
	double fraction = frexp(fabs(value), &exponent);

	if (value == 0)
		return sign;
	return sign | (unsigned)(exponent - 1 + bias) << fraction_bits |
		(unsigned)ldexp(2 * fraction - 1, fraction_bits);
}

static double widen(unsigned bits, int exponent_bits, int fraction_bits)
{
	int bias = (1 << (exponent_bits - 1)) - 1;
	int exponent = (int)(bits >> fraction_bits) & ((1 << exponent_bits) - 1);
	double fraction = ldexp(bits & ((1u << fraction_bits) - 1), -fraction_bits);
	double value = exponent ? ldexp(1 + fraction, exponent - bias) : ldexp(fraction, 1 - bias);

	return bits >> (exponent_bits + fraction_bits) ? -value : value;
}

void element_store(void *data, size_t i, int type, double value)
{
	switch (type) {
	case ABI_INT8: ((int8_t *)data)[i] = (int8_t)value; break;
	case ABI_UINT8: ((uint8_t *)data)[i] = (uint8_t)value; break;
	case ABI_INT32: ((int32_t *)data)[i] = (int32_t)value; break;
	case ABI_UINT32: ((uint32_t *)data)[i] = (uint32_t)value; break;
	case ABI_INT64: ((int64_t *)data)[i] = (int64_t)value; break;
	case ABI_UINT64: ((uint64_t *)data)[i] = (uint64_t)value; break;
	case ABI_FLOAT16: ((uint16_t *)data)[i] = (uint16_t)narrow(value, 5, 10); break;
	case ABI_FLOAT32: ((float *)data)[i] = (float)value; break;
	case ABI_FLOAT64: ((double *)data)[i] = value; break;
	case ABI_BFLOAT16: ((uint16_t *)data)[i] = (uint16_t)narrow(value, 8, 7); break;
	case ABI_FLOAT8E4M3: ((uint8_t *)data)[i] = (uint8_t)narrow(value, 4, 3); break;
	case ABI_FLOAT8E5M2: ((uint8_t *)data)[i] = (uint8_t)narrow(value, 5, 2); break;
	}
}

double element_load(const void *data, size_t i, int type)
{
	switch (type) {
	case ABI_INT8: return ((const int8_t *)data)[i];
	case ABI_UINT8: return ((const uint8_t *)data)[i];
	case ABI_INT32: return ((const int32_t *)data)[i];
	case ABI_UINT32: return ((const uint32_t *)data)[i];
	case ABI_INT64: return (double)((const int64_t *)data)[i];
	case ABI_UINT64: return (double)((const uint64_t *)data)[i];
	case ABI_FLOAT16: return widen(((const uint16_t *)data)[i], 5, 10);
	case ABI_FLOAT32: return (double)((const float *)data)[i];
	case ABI_FLOAT64: return ((const double *)data)[i];
	case ABI_BFLOAT16: return widen(((const uint16_t *)data)[i], 8, 7);
	case ABI_FLOAT8E4M3: return widen(((const uint8_t *)data)[i], 4, 3);
	default: return widen(((const uint8_t *)data)[i], 5, 2);
	}
}

static bool is_unsigned(int type)
{
	return type == ABI_UINT8 || type == ABI_UINT32 || type == ABI_UINT64;
}

/* Unsigned types leave the negative values out; products stay powers of two,
 * below the 128 that an int8 cannot hold. */
static int small(size_t i, int type, int op, int rank, uint64_t key)
{
	static const int sums[2][4] = { { -1, 0, 1, 1 }, { 0, 1, 0, 1 } };
	static const int prods[2][4] = { { 1, 2, -1, 1 }, { 1, 2, 1, 1 } };
	static const int orders[2][4] = { { -3, 5, -7, 6 }, { 3, 5, 7, 6 } };
	uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u ^ (key + (uint64_t)rank) * 0xbf58476d1ce4e5b9u;
	int at = (int)((x * 0x94d049bb133111ebu) >> 62);

	if (op == ABI_PROD)
		return rank < 6 ? prods[is_unsigned(type)][at] : 1;
	return (op == ABI_SUM ? sums : orders)[is_unsigned(type)][at];
}

void input_fill(void *data, size_t count, int type, int op, int rank, uint64_t key)
{
	double bits[15];		/* each value encoded once */
	size_t size = type_size(type);

	for (int v = is_unsigned(type) ? 0 : -7; v <= 7; v++)
		element_store(&bits[v + 7], 0, type, v);
	for (size_t i = 0; i < count; i++)
		memcpy((char *)data + i * size, &bits[small(i, type, op, rank, key) + 7], size);
}

void result_fill(void *data, size_t count, int type, int op, int ranks, uint64_t key)
{
	for (size_t i = 0; i < count; i++) {
		int a = small(i, type, op, 0, key);

		for (int rank = 1; rank < ranks; rank++) {
			int b = small(i, type, op, rank, key);

			switch (op) {
			case ABI_PROD: a *= b; break;
			case ABI_MAX: a = a > b ? a : b; break;
			case ABI_MIN: a = a < b ? a : b; break;
			default: a += b; break;
			}
		}
		/* no negative zero: -1 + 1 is +0 when rounded to nearest */
		element_store(data, i, type, a);
	}
}

size_t first_difference(const void *got, const void *want, size_t bytes)
{
	const unsigned char *a = got, *b = want;
	size_t i = 0;

	if (memcmp(a, b, bytes) == 0)
		return bytes;
	while (a[i] == b[i])
		i++;
	return i;
}
