/* Stands in for the CUDA driver in tests. What lies at an address is in its bits: 62 of device memory, 61 of
 * pinned memory, 60 of managed memory. */
int cuPointerGetAttribute(void *out, int attribute, unsigned long long p)
{
	int device = p >> 62 & 1, pinned = p >> 61 & 1, managed = p >> 60 & 1;

	if (!device && !pinned && !managed)
		return 1; /* CUDA_ERROR_INVALID_VALUE: not mine */
	switch (attribute) {
	case 2: /* MEMORY_TYPE */
		*(unsigned *)out = pinned ? 1 : 2;
		return 0;
	case 8: /* IS_MANAGED */
		*(char *)out = managed;
		return 0;
	}
	return 1;
}
