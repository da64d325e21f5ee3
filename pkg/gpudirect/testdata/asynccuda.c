/* A CUDA driver for tests, on host memory: streams are threads that take a while over everything, so that
 * what is not waited for is late. It has the functions that Device calls, and no more. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	SUCCESS, INVALID_VALUE = 1, NO_DEVICE = 100, INVALID_DEVICE = 101, NOT_READY = 600, ILLEGAL_ADDRESS = 700,
	NOT_SUPPORTED = 801, CAPTURE_UNSUPPORTED = 900
};

struct job {
	enum { COPY, CALL, REACH, AWAIT, WORD } what;
	void *to, *from;
	size_t size;
	void (*f)(void *);
	uint32_t value;
	struct job *next;
};

struct stream {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct job *first, **last;
	int queued, ended;
};

/* A moment: what was recorded in an event. It is never freed, as streams may wait for it. */
struct event {
	int *moment;
};

static __thread void *current = (void *)0x7700; /* a context of the caller's, which must come back */
static struct stream *legacy;
static __thread int mode; /* of this thread: global, which forbids calls that may wait while another one captures */

int cuThreadExchangeStreamCaptureMode(int *m)
{
	int before = mode;

	mode = *m;
	*m = before;
	return SUCCESS;
}

/* forbidden is what the driver does as long as some thread records a CUDA graph, as here for ever. */
static int forbidden(void) { return mode != 2; }

static void *serve(void *p)
{
	struct stream *s = p;

	for (;;) {
		struct job *j;

		pthread_mutex_lock(&s->lock);
		while (s->first == NULL && !s->ended)
			pthread_cond_wait(&s->more, &s->lock);
		j = s->first;
		if (j != NULL && (s->first = j->next) == NULL)
			s->last = &s->first;
		pthread_mutex_unlock(&s->lock);
		if (j == NULL)
			return NULL;
		usleep(300);
		switch (j->what) {
		case COPY:
			memcpy(j->to, j->from, j->size);
			break;
		case CALL:
			j->f(j->to);
			break;
		case REACH:
			__atomic_store_n((int *)j->to, 1, __ATOMIC_SEQ_CST);
			break;
		case AWAIT:
			while (!__atomic_load_n((int *)j->to, __ATOMIC_SEQ_CST))
				usleep(20);
			break;
		case WORD:
			while ((int32_t)(__atomic_load_n((uint32_t *)j->to, __ATOMIC_SEQ_CST) - j->value) < 0)
				usleep(20);
		}
		free(j);
		__atomic_sub_fetch(&s->queued, 1, __ATOMIC_SEQ_CST);
	}
}

static struct stream *start(void)
{
	struct stream *s = calloc(1, sizeof(*s));

	s->last = &s->first;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->more, NULL);
	pthread_create(&s->thread, NULL, serve, s);
	return s;
}

static int queue(struct stream *s, struct job job)
{
	struct job *j = malloc(sizeof(*j));

	if (current != (void *)0x1000)
		return INVALID_VALUE; /* not in the context of the device */
	*j = job;
	j->next = NULL;
	s = s != NULL ? s : legacy;
	__atomic_add_fetch(&s->queued, 1, __ATOMIC_SEQ_CST);
	pthread_mutex_lock(&s->lock);
	*s->last = j;
	s->last = &j->next;
	pthread_mutex_unlock(&s->lock);
	pthread_cond_signal(&s->more);
	return SUCCESS;
}

int cuInit(unsigned flags)
{
	if (getenv("FAKE_NO_DEVICE"))
		return NO_DEVICE;
	legacy = start();
	return flags;
}

int cuGetErrorName(int e, const char **name)
{
	switch (e) {
	case NO_DEVICE: *name = "CUDA_ERROR_NO_DEVICE"; break;
	case INVALID_DEVICE: *name = "CUDA_ERROR_INVALID_DEVICE"; break;
	case ILLEGAL_ADDRESS: *name = "CUDA_ERROR_ILLEGAL_ADDRESS"; break;
	case NOT_SUPPORTED: *name = "CUDA_ERROR_NOT_SUPPORTED"; break;
	default: *name = "CUDA_ERROR_INVALID_VALUE";
	}
	return SUCCESS;
}

int cuDeviceGet(int *device, int ordinal)
{
	*device = ordinal;
	return ordinal == 0 ? SUCCESS : INVALID_DEVICE;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
	*context = (void *)0x1000;
	return device;
}

int cuCtxGetCurrent(void **context)
{
	*context = current;
	return SUCCESS;
}

int cuCtxSetCurrent(void *context)
{
	current = context;
	return SUCCESS;
}

int cuMemHostAlloc(void **p, size_t size, unsigned flags)
{
	if (forbidden())
		return CAPTURE_UNSUPPORTED;
	*p = calloc(1, size);
	return flags == 3 ? SUCCESS : INVALID_VALUE;
}

int cuMemFreeHost(void *p)
{
	free(p);
	return SUCCESS;
}

int cuStreamCreate(void **stream, unsigned flags)
{
	*stream = start();
	return flags == 1 ? SUCCESS : INVALID_VALUE;
}

int cuStreamDestroy_v2(struct stream *s)
{
	pthread_mutex_lock(&s->lock);
	s->ended = 1;
	pthread_mutex_unlock(&s->lock);
	pthread_cond_signal(&s->more);
	return SUCCESS;
}

/* The device has an error of its own from the moment that this is asked of stream 2. */
int cuStreamQuery(struct stream *s)
{
	if (forbidden())
		return CAPTURE_UNSUPPORTED;
	if (s == (void *)2)
		return ILLEGAL_ADDRESS;
	return __atomic_load_n(&s->queued, __ATOMIC_SEQ_CST) == 0 ? SUCCESS : NOT_READY;
}

int cuStreamIsCapturing(void *stream, int *yes)
{
	*yes = stream == (void *)1;
	return SUCCESS;
}

int cuEventCreate(struct event **e, unsigned flags)
{
	*e = malloc(sizeof(**e));
	(*e)->moment = malloc(sizeof(int));
	*(*e)->moment = 1;
	return flags == 2 ? SUCCESS : INVALID_VALUE;
}

int cuEventRecord(struct event *e, struct stream *s)
{
	e->moment = calloc(1, sizeof(int));
	return queue(s, (struct job){.what = REACH, .to = e->moment});
}

int cuStreamWaitEvent(struct stream *s, struct event *e, unsigned flags)
{
	return flags != 0 ? INVALID_VALUE : queue(s, (struct job){.what = AWAIT, .to = e->moment});
}

int cuStreamWaitValue32_v2(struct stream *s, unsigned long long p, uint32_t value, unsigned flags)
{
	if (getenv("FAKE_NO_WAIT"))
		return NOT_SUPPORTED;
	return flags != 0 ? INVALID_VALUE : queue(s, (struct job){.what = WORD, .to = (void *)p, .value = value});
}

int cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t size, struct stream *s)
{
	return queue(s, (struct job){.what = COPY, .to = to, .from = (void *)from, .size = size});
}

int cuMemcpyHtoDAsync_v2(unsigned long long to, void *from, size_t size, struct stream *s)
{
	return queue(s, (struct job){.what = COPY, .to = (void *)to, .from = from, .size = size});
}

int cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from, size_t size, struct stream *s)
{
	return queue(s, (struct job){.what = COPY, .to = (void *)to, .from = (void *)from, .size = size});
}

/* CUDA_MEMCPY2D */
struct side {
	size_t x, y;
	int type;
	void *host;
	unsigned long long device;
	void *array;
	size_t pitch;
};

struct matrix {
	struct side from, to;
	size_t width, height;
};

static char *at(const struct side *s) { return s->type == 1 ? s->host : s->type == 2 ? (void *)s->device : NULL; }

int cuMemcpy2DAsync_v2(const struct matrix *c, struct stream *s)
{
	int result = SUCCESS;

	if (getenv("FAKE_NO_ROWS"))
		return NOT_SUPPORTED;
	if (c->from.pitch < c->width || c->to.pitch < c->width || c->from.pitch > 0x7fffffff || c->to.pitch > 0x7fffffff)
		return INVALID_VALUE;
	for (size_t i = 0; i < c->height && result == SUCCESS; i++)
		result = queue(s, (struct job){.what = COPY, .to = at(&c->to) + i * c->to.pitch,
			.from = at(&c->from) + i * c->from.pitch, .size = c->width});
	return result;
}

int cuLaunchHostFunc(struct stream *s, void (*f)(void *), void *arg)
{
	return queue(s, (struct job){.what = CALL, .to = arg, .f = f});
}
