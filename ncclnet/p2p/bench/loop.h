/* The loops that are timed. Like NCCL's, they poll and yield when nothing was
 * done. The bare ones move the same bytes over plain sockets, without messages. */
#include <stddef.h>

struct p2p_comm;

/* Each returns 0, or -1 after an error. */
int bench_send(struct p2p_comm *c, char *data, size_t size, int count, int window);
int bench_recv(struct p2p_comm *c, char *data, size_t size, int count, int window);
int bare_send(const int *fds, int lanes, char *data, size_t size, int count, int window);
int bare_recv(const int *fds, int lanes, char *data, size_t size, int count, int window);
