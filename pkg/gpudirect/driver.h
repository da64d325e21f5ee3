/* The functions of the CUDA driver that Device calls, in our own words: neither CUDA's headers nor its
 * libraries are needed to build. Each returns a CUresult, 0 for success, and leaves the context of its
 * thread as it was. Streams, events and addresses are the driver's. */
#ifndef GPUDIRECT_DRIVER_H
#define GPUDIRECT_DRIVER_H

#include <stddef.h>
#include <stdint.h>

/* Some of CUresult. */
enum { GPUD_NOT_READY = 600, GPUD_NOT_SUPPORTED = 801 };

/* gpud_open loads libcuda.so.1 and initialises the driver, once. Otherwise it writes why not. */
int gpud_open(char *why, size_t size);
/* gpud_error returns the name of a CUresult, such as CUDA_ERROR_OUT_OF_MEMORY. */
const char *gpud_error(int result);
/* gpud_device returns the primary context of a device, which frameworks share, and keeps it. */
int gpud_device(int ordinal, uintptr_t *context);
int gpud_pin(uintptr_t context, size_t size, void **memory);
int gpud_unpin(uintptr_t context, void *memory);
int gpud_stream(uintptr_t context, uintptr_t *stream);
int gpud_stream_destroy(uintptr_t context, uintptr_t stream);
int gpud_event(uintptr_t context, uintptr_t *event);
/* gpud_idle returns GPUD_NOT_READY while something is queued on the stream. */
int gpud_idle(uintptr_t context, uintptr_t stream);
int gpud_capturing(uintptr_t context, uintptr_t stream, int *yes);
int gpud_record(uintptr_t context, uintptr_t event, uintptr_t stream);
int gpud_wait(uintptr_t context, uintptr_t stream, uintptr_t event);
/* Rows of so many bytes each lie one behind another on the host, and pitch bytes apart on the device. */
int gpud_copy_out(uintptr_t context, void *host, uintptr_t device, size_t row, size_t rows, size_t pitch,
	uintptr_t stream);
int gpud_copy_in(uintptr_t context, uintptr_t device, void *host, size_t row, size_t rows, size_t pitch,
	uintptr_t stream);
int gpud_copy_within(uintptr_t context, uintptr_t to, uintptr_t from, size_t size, uintptr_t stream);
/* gpud_wait_word has a stream wait until the word, in pinned memory, is value or later, cyclically. */
int gpud_wait_word(uintptr_t context, uintptr_t stream, uint32_t *word, uint32_t value);
/* gpud_call has the Go function of a cgo.Handle called once the stream has come to it. */
int gpud_call(uintptr_t context, uintptr_t stream, uintptr_t handle);

#endif
