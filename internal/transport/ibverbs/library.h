// The functions of libibverbs and librdmacm, by pointers that rdma_load and rdma_load_cm find.
#ifndef MCAST_IBVERBS_LIBRARY_H
#define MCAST_IBVERBS_LIBRARY_H

#include "verbs.h"

#define VERBS(V)                                                                                                     \
	V(rdma_device **, ibv_get_device_list, (int *))                                                                   \
	V(void, ibv_free_device_list, (rdma_device **))                                                                   \
	V(const char *, ibv_get_device_name, (rdma_device *))                                                             \
	V(rdma_context *, ibv_open_device, (rdma_device *))                                                               \
	V(int, ibv_close_device, (rdma_context *))                                                                        \
	V(int, ibv_query_port, (rdma_context *, uint8_t, rdma_port_attr *))                                               \
	V(int, _ibv_query_gid_ex, (rdma_context *, uint32_t, uint32_t, rdma_gid_entry *, uint32_t, size_t))               \
	V(rdma_pd *, ibv_alloc_pd, (rdma_context *))                                                                      \
	V(int, ibv_dealloc_pd, (rdma_pd *))                                                                               \
	V(rdma_mr *, ibv_reg_mr, (rdma_pd *, void *, size_t, int))                                                        \
	V(int, ibv_dereg_mr, (rdma_mr *))                                                                                 \
	V(rdma_channel *, ibv_create_comp_channel, (rdma_context *))                                                      \
	V(int, ibv_destroy_comp_channel, (rdma_channel *))                                                                \
	V(rdma_cq *, ibv_create_cq, (rdma_context *, int, void *, rdma_channel *, int))                                   \
	V(int, ibv_destroy_cq, (rdma_cq *))                                                                               \
	V(int, ibv_get_cq_event, (rdma_channel *, rdma_cq **, void **))                                                   \
	V(void, ibv_ack_cq_events, (rdma_cq *, unsigned))                                                                 \
	V(rdma_qp *, ibv_create_qp, (rdma_pd *, rdma_qp_init *))                                                          \
	V(int, ibv_modify_qp, (rdma_qp *, rdma_qp_attr *, int))                                                           \
	V(int, ibv_destroy_qp, (rdma_qp *))                                                                               \
	V(rdma_ah *, ibv_create_ah, (rdma_pd *, rdma_ah_attr *))                                                          \
	V(int, ibv_destroy_ah, (rdma_ah *))                                                                               \
	V(int, ibv_attach_mcast, (rdma_qp *, const uint8_t *, uint16_t))                                                  \
	V(int, ibv_detach_mcast, (rdma_qp *, const uint8_t *, uint16_t))                                                  \
	V(const char *, ibv_wc_status_str, (int))

struct sockaddr;
#define CM(V)                                                                                                        \
	V(rdma_cm_channel *, rdma_create_event_channel, (void))                                                           \
	V(void, rdma_destroy_event_channel, (rdma_cm_channel *))                                                          \
	V(int, rdma_create_id, (rdma_cm_channel *, rdma_cm_id **, void *, int))                                           \
	V(int, rdma_destroy_id, (rdma_cm_id *))                                                                           \
	V(int, rdma_bind_addr, (rdma_cm_id *, struct sockaddr *))                                                         \
	V(int, rdma_init_qp_attr, (rdma_cm_id *, rdma_qp_attr *, int *))                                                  \
	V(int, rdma_join_multicast, (rdma_cm_id *, struct sockaddr *, void *))                                            \
	V(int, rdma_leave_multicast, (rdma_cm_id *, struct sockaddr *))                                                   \
	V(int, rdma_get_cm_event, (rdma_cm_channel *, rdma_cm_event **))                                                  \
	V(int, rdma_ack_cm_event, (rdma_cm_event *))

// What libraries older than rdma-core 37 lack: NULL there.
#define OPTIONAL(V) \
	V(int, ibv_is_fork_initialized, (void))

#define POINTER(result, name, args) extern result(*p_##name) args;
VERBS(POINTER)
OPTIONAL(POINTER)
CM(POINTER)
#undef POINTER

// doorbell is how many descriptors are posted at a time, and how many completions are taken at a time.
enum { doorbell = 64 };

// rdma_poll takes up to so many completions of a queue, and hands the i-th to take. It returns how many, or -1.
static inline int rdma_poll(rdma_cq *cq, int most, void (*take)(void *to, int i, const rdma_wc *wc), void *to)
{
	rdma_wc wc[doorbell];
	int found = 0;
	for (int k = doorbell, n = k; n == k && found < most; found += n) {
		k = most - found < doorbell ? most - found : doorbell;
		if ((n = cq->context->ops.poll_cq(cq, k, wc)) < 0)
			return -1;
		for (int i = 0; i < n; i++)
			take(to, found + i, &wc[i]);
	}
	return found;
}

#endif
