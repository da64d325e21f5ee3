/* Sockets, listening comms and registrations, shared by net and CollNet. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "reference.h"

static struct sockaddr_in loopback(uint16_t port)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return address;
}

int ref_listen_socket(struct ref_handle *handle, int *fd)
{
	struct sockaddr_in address = loopback(0);
	socklen_t size = sizeof(address);
	int s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	memset(handle, 0, sizeof(*handle));
	if (s < 0)
		return ABI_SYSTEM_ERROR;
	if (bind(s, (struct sockaddr *)&address, size) || listen(s, 256) ||
	    getsockname(s, (struct sockaddr *)&address, &size) ||
	    getrandom(&handle->cookie, sizeof(handle->cookie), 0) != sizeof(handle->cookie)) {
		close(s);
		return ABI_SYSTEM_ERROR;
	}
	handle->magic = REF_MAGIC;
	handle->port = ntohs(address.sin_port);
	*fd = s;
	return ABI_SUCCESS;
}

bool ref_handle_ok(const struct ref_handle *handle)
{
	return handle->magic == REF_MAGIC && handle->port != 0 && handle->fd >= 0;
}

/* Begins a connection; it may not be there yet: a write then says EAGAIN. */
int ref_dial(const struct ref_handle *handle, int *fd)
{
	struct sockaddr_in address = loopback(handle->port);
	int one = 1, s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (s < 0)
		return ABI_SYSTEM_ERROR;
	setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (connect(s, (struct sockaddr *)&address, sizeof(address)) && errno != EINPROGRESS) {
		close(s);
		return ABI_REMOTE_ERROR;
	}
	*fd = s;
	return ABI_SUCCESS;
}

int ref_take(int listen_fd)
{
	int one = 1, s = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (s >= 0)
		setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return s;
}

/* Writes as many bytes of data[*moved..size) as the socket takes. */
int ref_push(int fd, const void *data, size_t size, size_t *moved)
{
	while (*moved < size) {
		ssize_t n = send(fd, (const char *)data + *moved, size - *moved, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN || errno == ENOTCONN ? ABI_SUCCESS : ABI_REMOTE_ERROR;
		*moved += (size_t)n;
	}
	return ABI_SUCCESS;
}

/* Reads the bytes that have come, to data[*moved..size); the end of the stream is an error. */
int ref_pull(int fd, void *data, size_t size, size_t *moved)
{
	while (*moved < size) {
		ssize_t n = recv(fd, (char *)data + *moved, size - *moved, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return ABI_SUCCESS;
		if (n <= 0)
			return mutant("peer-death-unseen") ? ABI_SUCCESS : ABI_REMOTE_ERROR;
		*moved += (size_t)n;
	}
	return ABI_SUCCESS;
}

int ref_listen(void *ctx, int dev, void *handle, void **listen_comm)
{
	struct ref_listen *l;
	int rc;

	if (dev != 0)
		return ABI_INVALID_ARGUMENT;
	if (mutant("listen-fails"))
		return ABI_SYSTEM_ERROR;
	l = calloc(1, sizeof(*l));
	if (!l)
		return ABI_SYSTEM_ERROR;
	l->id = ctx ? ((const struct ref_context *)ctx)->id : 0;
	l->pending = -1;
	rc = ref_listen_socket(&l->handle, &l->fd);
	if (rc) {
		free(l);
		return rc;
	}
	memcpy(handle, &l->handle, sizeof(l->handle));
	if (mutant("handle-overflow"))
		memset((char *)handle + 128, 0xee, 8);
	*listen_comm = l;
	return ABI_SUCCESS;
}

int ref_close_listen(void *listen_comm)
{
	struct ref_listen *l = listen_comm;

	if (l->pending >= 0)
		close(l->pending);
	close(l->fd);
	free(l);
	return ABI_SUCCESS;
}

int ref_reg(void *comm, void *data, size_t size, int type, void **mhandle)
{
	struct ref_comm *c = comm;
	struct ref_mr *mr;

	if (type != ABI_PTR_HOST)
		return ABI_INVALID_USAGE;
	mr = malloc(sizeof(*mr));
	if (!mr)
		return ABI_SYSTEM_ERROR;
	mr->data = data;
	mr->size = size;
	if (mutant("regmr-race")) {
		__atomic_add_fetch(&c->registering, 1, __ATOMIC_SEQ_CST);
		usleep(2000);
		__atomic_sub_fetch(&c->registering, 1, __ATOMIC_SEQ_CST);
	}
	pthread_mutex_lock(&c->lock);
	mr->next = c->mrs;
	c->mrs = mr;
	pthread_mutex_unlock(&c->lock);
	*mhandle = mutant("null-mhandle") ? NULL : mr;
	return ABI_SUCCESS;
}

int ref_dereg(void *comm, void *mhandle)
{
	struct ref_comm *c = comm;
	int rc = ABI_INVALID_ARGUMENT;

	pthread_mutex_lock(&c->lock);
	for (struct ref_mr **at = &c->mrs; *at; at = &(*at)->next) {
		if (*at == mhandle) {
			*at = (*at)->next;
			free(mhandle);
			rc = ABI_SUCCESS;
			break;
		}
	}
	pthread_mutex_unlock(&c->lock);
	return rc;
}

bool ref_covers(const void *mhandle, const void *data, size_t size)
{
	const struct ref_mr *mr = mhandle;
	const char *p = data;

	if (mutant("null-mhandle"))
		return true;
	return mr && (size == 0 || (p >= mr->data && size <= mr->size && p + size <= mr->data + mr->size));
}

void ref_drop_mrs(struct ref_comm *comm)
{
	while (comm->mrs) {
		struct ref_mr *mr = comm->mrs;

		comm->mrs = mr->next;
		free(mr);
	}
}
