/* Stands in for the CUDA driver in tests: addresses with bit 62 set are the device's. */
int cuPointerGetAttribute(void *out, int attribute, unsigned long long p)
{
	if (attribute != 2)
		return 1;
	if (!(p >> 62 & 1))
		return 1; /* CUDA_ERROR_INVALID_VALUE: not mine */
	*(unsigned int *)out = 2;
	return 0;
}
