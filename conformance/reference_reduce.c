/* Sums, products, minima and maxima of NCCL's element types. The 16-bit floats
 * are accumulated in f32 over all ranks and rounded once, to nearest even. */
#include <string.h>

#include "reference.h"

size_t ref_type_size(int type)
{
	static const unsigned char size[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

	return type >= ABI_INT8 && type <= ABI_BFLOAT16 ? size[type] : 0;
}

bool ref_reduce_support(int type, int op)
{
	return ref_type_size(type) && op >= ABI_SUM && op <= ABI_MIN;
}

static float from_bits(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static uint32_t to_bits(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static float from_bf16(uint16_t half)
{
	return from_bits((uint32_t)half << 16);
}

static uint16_t to_bf16(float value)
{
	uint32_t bits = to_bits(value);

	if (value != value)
		return 0x7fc0;
	return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

static float from_f16(uint16_t half)
{
	uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = (half >> 10) & 31, fraction = half & 1023;

	if (exponent == 31)
		return from_bits(sign | 0x7f800000 | fraction << 13);
	if (exponent == 0) { /* a multiple of 2^-24 */
		float value = (float)fraction * 0x1p-24f;

		return sign ? -value : value;
	}
	return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

static uint16_t to_f16(float value)
{
	uint32_t bits = to_bits(value);
	uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
	float size = from_bits(bits & 0x7fffffff);

	if (value != value)
		return 0x7e00;
	if (size >= 65520.0f) /* rounds to 65536, which is not there */
		return sign | 0x7c00;
	if (size < 0x1p-14f) { /* adding 2^-1 rounds to multiples of 2^-24 */
		return sign | (uint16_t)(to_bits(size + 0.5f) - to_bits(0.5f));
	}
	bits &= 0x7fffffff;
	bits += 0xfff + ((bits >> 13) & 1);
	return sign | (uint16_t)((bits >> 13) - (112 << 10));
}

static float fold_float(float a, float b, int op)
{
	switch (op) {
	case ABI_PROD: return a * b;
	case ABI_MAX: return a > b ? a : b;
	case ABI_MIN: return a < b ? a : b;
	default: return a + b;
	}
}

#define FOLD(name, T, U)                                                                  \
	static void name(T *to, const void *const *from, int nfrom, size_t count, int op) \
	{                                                                                 \
		for (size_t i = 0; i < count; i++) {                                      \
			T a = ((const T *)from[0])[i];                                    \
			for (int f = 1; f < nfrom; f++) {                                 \
				T b = ((const T *)from[f])[i];                            \
				switch (op) {                                             \
				case ABI_PROD: a = (T)((U)a * (U)b); break;                   \
				case ABI_MAX: a = a > b ? a : b; break;                       \
				case ABI_MIN: a = a < b ? a : b; break;                       \
				default: a = (T)((U)a + (U)b); break;                     \
				}                                                         \
			}                                                                 \
			to[i] = a;                                                        \
		}                                                                         \
	}

/* Integers wrap: the arithmetic is done unsigned. */
FOLD(fold_i8, int8_t, uint32_t)
FOLD(fold_u8, uint8_t, uint32_t)
FOLD(fold_i32, int32_t, uint32_t)
FOLD(fold_u32, uint32_t, uint32_t)
FOLD(fold_i64, int64_t, uint64_t)
FOLD(fold_u64, uint64_t, uint64_t)
FOLD(fold_f32, float, float)
FOLD(fold_f64, double, double)

static void fold_half(uint16_t *to, const void *const *from, int nfrom, size_t count, int type, int op)
{
	float (*load)(uint16_t) = type == ABI_FLOAT16 ? from_f16 : from_bf16;
	uint16_t (*store)(float) = type == ABI_FLOAT16 ? to_f16 : to_bf16;
	bool each = mutant("coll-bf16-rounds");

	for (size_t i = 0; i < count; i++) {
		float a = load(((const uint16_t *)from[0])[i]);

		for (int f = 1; f < nfrom; f++) {
			a = fold_float(a, load(((const uint16_t *)from[f])[i]), op);
			if (each)
				a = load(store(a));
		}
		to[i] = store(a);
	}
}

void ref_reduce(void *to, const void *const *from, int nfrom, size_t count, int type, int op)
{
	if (mutant("coll-wrong-op") && op == ABI_MAX)
		op = ABI_SUM;
	switch (type) {
	case ABI_INT8: fold_i8(to, from, nfrom, count, op); break;
	case ABI_UINT8: fold_u8(to, from, nfrom, count, op); break;
	case ABI_INT32: fold_i32(to, from, nfrom, count, op); break;
	case ABI_UINT32: fold_u32(to, from, nfrom, count, op); break;
	case ABI_INT64: fold_i64(to, from, nfrom, count, op); break;
	case ABI_UINT64: fold_u64(to, from, nfrom, count, op); break;
	case ABI_FLOAT32: fold_f32(to, from, nfrom, count, op); break;
	case ABI_FLOAT64: fold_f64(to, from, nfrom, count, op); break;
	default: fold_half(to, from, nfrom, count, type, op); break;
	}
}
