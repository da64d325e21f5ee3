// A librdmacm for tests without devices: 127.0.0.1 is on port 1 of the device of library.c, beside which it is loaded.
// FAKE_CM sets the outcome of a join: refused, silent, or (none) joined; or that there is no file to open (absent). The
// number of open objects is in the file FAKE_OPEN.
#include "../abi.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static rdma_context device; // ibv_get_device_name says the same name of all
static int ends[2], open_things;

static void count(int change)
{
	const char *path = getenv("FAKE_OPEN");
	FILE *f = path ? fopen(path, "w") : NULL;
	open_things += change;
	if (f) {
		fprintf(f, "%d", open_things);
		fclose(f);
	}
}

static int is(const char *what) { return getenv("FAKE_CM") && !strcmp(getenv("FAKE_CM"), what); }

rdma_cm_channel *rdma_create_event_channel(void)
{
	if (is("absent") || pipe(ends)) {
		errno = ENOENT;
		return NULL;
	}
	count(1);
	rdma_cm_channel *c = calloc(1, sizeof *c);
	c->fd = ends[0];
	return c;
}
void rdma_destroy_event_channel(rdma_cm_channel *c)
{
	close(ends[0]);
	close(ends[1]);
	free(c);
	count(-1);
}
int rdma_create_id(rdma_cm_channel *c, rdma_cm_id **id, void *user, int space)
{
	(void)user;
	if (space != RDMA_CM_UDP)
		return errno = EINVAL, -1;
	*id = calloc(1, sizeof **id);
	(*id)->channel = c;
	count(1);
	return 0;
}
int rdma_destroy_id(rdma_cm_id *id)
{
	free(id);
	count(-1);
	return 0;
}
int rdma_bind_addr(rdma_cm_id *id, struct sockaddr *a)
{
	if (((struct sockaddr_in *)a)->sin_addr.s_addr == htonl(INADDR_LOOPBACK)) {
		id->verbs = &device;
		id->port_num = 1;
	}
	return 0;
}
int rdma_init_qp_attr(rdma_cm_id *id, rdma_qp_attr *a, int *mask)
{
	(void)id;
	*mask = RDMA_SET_PKEY;
	a->pkey_index = 2;
	return 0;
}
int rdma_join_multicast(rdma_cm_id *id, struct sockaddr *a, void *user)
{
	(void)id, (void)a, (void)user;
	return is("silent") ? 0 : write(ends[1], "", 1) != 1;
}
int rdma_leave_multicast(rdma_cm_id *id, struct sockaddr *a) { return (void)id, (void)a, count(-1), 0; }
int rdma_get_cm_event(rdma_cm_channel *c, rdma_cm_event **out)
{
	char b;
	if (read(c->fd, &b, 1) != 1)
		return -1; // errno is read's
	rdma_cm_event *e = calloc(1, sizeof *e);
	*e = (rdma_cm_event){.event = RDMA_CM_JOINED};
	if (is("refused")) {
		e->event = RDMA_CM_REFUSED;
		e->status = -22;
	} else {
		e->ud.qkey = 0x01234567;
		e->ud.ah_attr = (rdma_ah_attr){.grh = {.dgid = {0xff, [15] = 9}, .hop_limit = 3}, .dlid = 0xc005, .sl = 4,
			.static_rate = 6,
		                               .is_global = 1, .port_num = 1};
		count(1);
	}
	*out = e;
	return 0;
}
int rdma_ack_cm_event(rdma_cm_event *e) { return free(e), 0; }
