#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#include "_cgo_export.h"
#include "driver.h"

typedef unsigned long long device_ptr;

/* Of the CUDA driver API, with the numbers of its header. */
enum {
	CU_MEMHOSTALLOC_PORTABLE = 1,
	CU_MEMHOSTALLOC_DEVICEMAP = 2,
	CU_MEMORYTYPE_HOST = 1,
	CU_MEMORYTYPE_DEVICE = 2,
	MAX_PITCH = 0x7fffffff, /* CU_DEVICE_ATTRIBUTE_MAX_PITCH of all devices so far */
	CU_STREAM_NON_BLOCKING = 1,
	CU_EVENT_DISABLE_TIMING = 2,
	CU_STREAM_WAIT_VALUE_GEQ = 0,
	CU_STREAM_CAPTURE_MODE_RELAXED = 2,
};

/* CUDA_MEMCPY2D: a copy of rows. */
struct side {
	size_t x, y;
	int type;
	char *host;
	device_ptr device;
	void *array;
	size_t pitch;
};

struct matrix {
	struct side from, to;
	size_t width, height;
};

static struct {
	int (*init)(unsigned);
	int (*error_name)(int, const char **);
	int (*device_get)(int *, int);
	int (*primary_retain)(void **, int);
	int (*get_current)(void **);
	int (*set_current)(void *);
	int (*capture_mode)(int *);
	int (*host_alloc)(void **, size_t, unsigned);
	int (*host_free)(void *);
	int (*stream_create)(void **, unsigned);
	int (*stream_destroy)(void *);
	int (*stream_query)(void *);
	int (*stream_capturing)(void *, int *);
	int (*stream_wait_event)(void *, void *, unsigned);
	int (*stream_wait_value)(void *, device_ptr, uint32_t, unsigned);
	int (*event_create)(void **, unsigned);
	int (*event_record)(void *, void *);
	int (*copy_out)(void *, device_ptr, size_t, void *);
	int (*copy_in)(device_ptr, const void *, size_t, void *);
	int (*copy_within)(device_ptr, device_ptr, size_t, void *);
	int (*copy_rows)(const struct matrix *, void *);
	int (*host_func)(void *, void (*)(void *), void *);
} cu;

/* The names are those of one version of a function each, as cuda.h gives them to programs that are
 * built with it: the driver keeps them. The youngest is of CUDA 11.7. */
static const struct {
	const char *name;
	void **function;
} wanted[] = {
	{"cuInit", (void **)&cu.init},
	{"cuGetErrorName", (void **)&cu.error_name},
	{"cuDeviceGet", (void **)&cu.device_get},
	{"cuDevicePrimaryCtxRetain", (void **)&cu.primary_retain},
	{"cuCtxGetCurrent", (void **)&cu.get_current},
	{"cuCtxSetCurrent", (void **)&cu.set_current},
	{"cuThreadExchangeStreamCaptureMode", (void **)&cu.capture_mode},
	{"cuMemHostAlloc", (void **)&cu.host_alloc},
	{"cuMemFreeHost", (void **)&cu.host_free},
	{"cuStreamCreate", (void **)&cu.stream_create},
	{"cuStreamDestroy_v2", (void **)&cu.stream_destroy},
	{"cuStreamQuery", (void **)&cu.stream_query},
	{"cuStreamIsCapturing", (void **)&cu.stream_capturing},
	{"cuStreamWaitEvent", (void **)&cu.stream_wait_event},
	{"cuStreamWaitValue32_v2", (void **)&cu.stream_wait_value},
	{"cuEventCreate", (void **)&cu.event_create},
	{"cuEventRecord", (void **)&cu.event_record},
	{"cuMemcpyDtoHAsync_v2", (void **)&cu.copy_out},
	{"cuMemcpyHtoDAsync_v2", (void **)&cu.copy_in},
	{"cuMemcpyDtoDAsync_v2", (void **)&cu.copy_within},
	{"cuMemcpy2DAsync_v2", (void **)&cu.copy_rows},
	{"cuLaunchHostFunc", (void **)&cu.host_func},
};

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static int opened;

static int load(char *why, size_t size)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	int result;

	if (library == NULL) {
		snprintf(why, size, "%s", dlerror());
		return -1;
	}
	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		*wanted[i].function = dlsym(library, wanted[i].name);
		if (*wanted[i].function == NULL) {
			snprintf(why, size, "the driver has no %s: it is older than CUDA 11.7", wanted[i].name);
			return -1;
		}
	}
	result = cu.init(0);
	if (result != 0)
		snprintf(why, size, "cuInit: %s", gpud_error(result));
	return result;
}

int gpud_open(char *why, size_t size)
{
	pthread_mutex_lock(&opening);
	if (!opened)
		opened = load(why, size) == 0;
	pthread_mutex_unlock(&opening);
	return opened ? 0 : -1;
}

const char *gpud_error(int result)
{
	const char *name = NULL;

	if (cu.error_name == NULL || cu.error_name(result, &name) != 0 || name == NULL)
		return "an unknown error";
	return name;
}

int gpud_device(int ordinal, uintptr_t *context)
{
	int device, result = cu.device_get(&device, ordinal);

	return result != 0 ? result : cu.primary_retain((void **)context, device);
}

/* IN runs a call in a context. While a thread records a CUDA graph, the driver refuses calls of other threads that
 * may wait, such as cuMemHostAlloc, and ends the graph. None of ours touches what is recorded: the mode says so. */
#define IN(context, call)                        \
	do {                                         \
		void *before = NULL;                     \
		int mode = CU_STREAM_CAPTURE_MODE_RELAXED;       \
		int result = cu.get_current(&before);    \
		if (result == 0)                         \
			result = cu.set_current((void *)context);    \
		if (result == 0) {                       \
			cu.capture_mode(&mode);              \
			result = (call);                     \
			cu.capture_mode(&mode);              \
			cu.set_current(before);              \
		}                                        \
		return result;                           \
	} while (0)

int gpud_pin(uintptr_t context, size_t size, void **memory)
{
	IN(context, cu.host_alloc(memory, size, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
}

int gpud_unpin(uintptr_t context, void *memory)
{
	IN(context, cu.host_free(memory));
}

int gpud_stream(uintptr_t context, uintptr_t *stream)
{
	IN(context, cu.stream_create((void **)stream, CU_STREAM_NON_BLOCKING));
}

int gpud_stream_destroy(uintptr_t context, uintptr_t stream)
{
	IN(context, cu.stream_destroy((void *)stream));
}

int gpud_event(uintptr_t context, uintptr_t *event)
{
	IN(context, cu.event_create((void **)event, CU_EVENT_DISABLE_TIMING));
}

int gpud_idle(uintptr_t context, uintptr_t stream)
{
	IN(context, cu.stream_query((void *)stream));
}

int gpud_capturing(uintptr_t context, uintptr_t stream, int *yes)
{
	IN(context, cu.stream_capturing((void *)stream, yes));
}

int gpud_record(uintptr_t context, uintptr_t event, uintptr_t stream)
{
	IN(context, cu.event_record((void *)event, (void *)stream));
}

int gpud_wait(uintptr_t context, uintptr_t stream, uintptr_t event)
{
	IN(context, cu.stream_wait_event((void *)stream, (void *)event, 0));
}

/* copy queues rows as one copy, or one by one where the driver has no such copies or they are too far apart. */
static int copy(struct side to, struct side from, size_t row, size_t rows, void *stream)
{
	int result = GPUD_NOT_SUPPORTED;

	if (to.pitch == row && from.pitch == row) {
		row *= rows;
		rows = 1;
	}
	if (rows > 1 && to.pitch <= MAX_PITCH && from.pitch <= MAX_PITCH)
		result = cu.copy_rows(&(struct matrix){from, to, row, rows}, stream);
	if (result != GPUD_NOT_SUPPORTED)
		return result;
	result = 0;
	for (size_t i = 0; i < rows && result == 0; i++)
		result = to.type == CU_MEMORYTYPE_HOST
			? cu.copy_out(to.host + i * to.pitch, from.device + i * from.pitch, row, stream)
			: cu.copy_in(to.device + i * to.pitch, from.host + i * from.pitch, row, stream);
	return result;
}

static struct side on_host(void *p, size_t pitch)
{
	return (struct side){.type = CU_MEMORYTYPE_HOST, .host = p, .pitch = pitch};
}

static struct side on_device(uintptr_t p, size_t pitch)
{
	return (struct side){.type = CU_MEMORYTYPE_DEVICE, .device = p, .pitch = pitch};
}

int gpud_copy_out(uintptr_t context, void *host, uintptr_t device, size_t row, size_t rows, size_t pitch,
	uintptr_t stream)
{
	IN(context, copy(on_host(host, row), on_device(device, pitch), row, rows, (void *)stream));
}

int gpud_copy_in(uintptr_t context, uintptr_t device, void *host, size_t row, size_t rows, size_t pitch,
	uintptr_t stream)
{
	IN(context, copy(on_device(device, pitch), on_host(host, row), row, rows, (void *)stream));
}

int gpud_copy_within(uintptr_t context, uintptr_t to, uintptr_t from, size_t size, uintptr_t stream)
{
	IN(context, cu.copy_within(to, from, size, (void *)stream));
}

int gpud_wait_word(uintptr_t context, uintptr_t stream, uint32_t *word, uint32_t value)
{
	IN(context, cu.stream_wait_value((void *)stream, (uintptr_t)word, value, CU_STREAM_WAIT_VALUE_GEQ));
}

static void reached(void *handle)
{
	goReached((uintptr_t)handle);
}

int gpud_call(uintptr_t context, uintptr_t stream, uintptr_t handle)
{
	IN(context, cu.host_func((void *)stream, reached, (void *)handle));
}
