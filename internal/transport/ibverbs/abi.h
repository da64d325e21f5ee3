// The interface of libibverbs.so.1, and of librdmacm.so.1 beside it, declared here so that nothing of RDMA is needed to
// build: the structures of rdma-core's libibverbs/verbs.h (read at version 44; the ABI IBVERBS_1.1 has kept them since
// 2007), as far as they are used. Posting and polling have no symbols: they go through functions in the context.
// abi_test.go holds sizes and offsets to the header wherever that is installed.
#ifndef MCAST_IBVERBS_ABI_H
#define MCAST_IBVERBS_ABI_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

typedef struct rdma_device rdma_device; // struct ibv_device: opaque
typedef struct rdma_ah rdma_ah;         // struct ibv_ah: opaque
typedef struct rdma_cq rdma_cq;
typedef struct rdma_qp rdma_qp;

typedef struct {
	uint64_t addr;
	uint32_t length;
	uint32_t lkey;
} rdma_sge;

typedef struct rdma_send_wr {
	uint64_t wr_id;
	struct rdma_send_wr *next;
	rdma_sge *sg_list;
	int num_sge;
	int opcode;
	unsigned send_flags;
	uint32_t imm_data;
	union {
		struct {
			rdma_ah *ah;
			uint32_t remote_qpn;
			uint32_t remote_qkey;
		} ud;
		struct {
			uint64_t remote_addr;
			uint32_t rkey;
		} rdma;
		uint64_t largest[4];
	} wr;
	uint64_t rest[7]; // xrc, memory windows, segmentation
} rdma_send_wr;

typedef struct rdma_recv_wr {
	uint64_t wr_id;
	struct rdma_recv_wr *next;
	rdma_sge *sg_list;
	int num_sge;
} rdma_recv_wr;

typedef struct {
	uint64_t wr_id;
	int status;
	int opcode;
	uint32_t vendor_err;
	uint32_t byte_len;
	uint32_t imm_data;
	uint32_t qp_num;
	uint32_t src_qp;
	unsigned wc_flags;
	uint16_t pkey_index;
	uint16_t slid;
	uint8_t sl;
	uint8_t dlid_path_bits;
} rdma_wc;

typedef struct {
	rdma_device *device;
	struct {
		void *before_poll_cq[11];
		int (*poll_cq)(rdma_cq *, int, rdma_wc *);
		int (*req_notify_cq)(rdma_cq *, int solicited_only);
		void *before_post_send[12];
		int (*post_send)(rdma_qp *, rdma_send_wr *, rdma_send_wr **bad);
		int (*post_recv)(rdma_qp *, rdma_recv_wr *, rdma_recv_wr **bad);
		void *after_post_recv[5];
	} ops;
	int cmd_fd;
	int async_fd;
	int num_comp_vectors;
	pthread_mutex_t mutex;
	void *abi_compat;
} rdma_context;

typedef struct {
	rdma_context *context;
	uint32_t handle;
} rdma_pd;

typedef struct {
	rdma_context *context;
	rdma_pd *pd;
	void *addr;
	size_t length;
	uint32_t handle;
	uint32_t lkey;
	uint32_t rkey;
} rdma_mr;

typedef struct {
	rdma_context *context;
	int fd;
	int refcnt;
} rdma_channel;

struct rdma_cq { // what follows is the library's
	rdma_context *context;
	rdma_channel *channel;
	void *cq_context;
	uint32_t handle;
	int cqe;
};

struct rdma_qp { // what follows is the library's
	rdma_context *context;
	void *qp_context;
	rdma_pd *pd;
	rdma_cq *send_cq;
	rdma_cq *recv_cq;
	void *srq;
	uint32_t handle;
	uint32_t qp_num;
};

typedef struct {
	uint32_t max_send_wr;
	uint32_t max_recv_wr;
	uint32_t max_send_sge;
	uint32_t max_recv_sge;
	uint32_t max_inline_data;
} rdma_qp_cap;

typedef struct {
	void *qp_context;
	rdma_cq *send_cq;
	rdma_cq *recv_cq;
	void *srq;
	rdma_qp_cap cap;
	int qp_type;
	int sq_sig_all;
} rdma_qp_init;

typedef struct {
	uint8_t dgid[16] __attribute__((aligned(8)));
	uint32_t flow_label;
	uint8_t sgid_index;
	uint8_t hop_limit;
	uint8_t traffic_class;
} rdma_route;

typedef struct {
	rdma_route grh;
	uint16_t dlid;
	uint8_t sl;
	uint8_t src_path_bits;
	uint8_t static_rate;
	uint8_t is_global;
	uint8_t port_num;
} rdma_ah_attr;

typedef struct {
	int qp_state;
	int cur_qp_state;
	int path_mtu;
	int path_mig_state;
	uint32_t qkey;
	uint32_t rq_psn;
	uint32_t sq_psn;
	uint32_t dest_qp_num;
	unsigned qp_access_flags;
	rdma_qp_cap cap;
	rdma_ah_attr ah_attr;
	rdma_ah_attr alt_ah_attr;
	uint16_t pkey_index;
	uint16_t alt_pkey_index;
	uint8_t en_sqd_async_notify;
	uint8_t sq_draining;
	uint8_t max_rd_atomic;
	uint8_t max_dest_rd_atomic;
	uint8_t min_rnr_timer;
	uint8_t port_num;
	uint8_t timeout;
	uint8_t retry_cnt;
	uint8_t rnr_retry;
	uint8_t alt_port_num;
	uint8_t alt_timeout;
	uint32_t rate_limit;
} rdma_qp_attr;

typedef struct { // of the exported ibv_query_port; the header's inline function fills two bytes more
	int state;
	int max_mtu;
	int active_mtu;
	int gid_tbl_len;
	uint32_t port_cap_flags;
	uint32_t max_msg_sz;
	uint32_t bad_pkey_cntr;
	uint32_t qkey_viol_cntr;
	uint16_t pkey_tbl_len;
	uint16_t lid;
	uint16_t sm_lid;
	uint8_t lmc;
	uint8_t max_vl_num;
	uint8_t sm_sl;
	uint8_t subnet_timeout;
	uint8_t init_type_reply;
	uint8_t active_width;
	uint8_t active_speed;
	uint8_t phys_state;
	uint8_t link_layer;
	uint8_t flags;
	uint16_t port_cap_flags2;
} rdma_port_attr;

typedef struct {
	uint8_t gid[16] __attribute__((aligned(8)));
	uint32_t gid_index;
	uint32_t port_num;
	uint32_t gid_type;
	uint32_t ndev_ifindex;
} rdma_gid_entry;

// Of librdmacm.so.1 (rdma/rdma_cma.h, version 44).
typedef struct {
	int fd;
} rdma_cm_channel;

typedef struct { // what follows is the library's
	rdma_context *verbs;
	rdma_cm_channel *channel;
	void *context;
	rdma_qp *qp;
	uint64_t route[39]; // addresses and paths
	int port_space;
	uint8_t port_num;
} rdma_cm_id;

typedef struct {
	rdma_cm_id *id;
	rdma_cm_id *listen_id;
	int event;
	int status;
	struct { // of the union: what events of multicast have
		const void *private_data;
		uint8_t private_data_len;
		rdma_ah_attr ah_attr;
		uint32_t qp_num;
		uint32_t qkey;
	} ud;
} rdma_cm_event;

enum {
	RDMA_WRITE = 0,                // IBV_WR_RDMA_WRITE
	RDMA_WRITE_IMMEDIATE = 1,      // IBV_WR_RDMA_WRITE_WITH_IMM
	RDMA_SEND = 2,                 // IBV_WR_SEND
	RDMA_READ = 4,                 // IBV_WR_RDMA_READ
	RDMA_SIGNALED = 2,             // IBV_SEND_SIGNALED
	RDMA_INLINE = 8,               // IBV_SEND_INLINE
	RDMA_RECEIVED = 128,           // IBV_WC_RECV: of opcodes in completions, those from here on are receives
	RDMA_QPT_RC = 2,               // IBV_QPT_RC
	RDMA_QPT_UD = 4,               // IBV_QPT_UD
	RDMA_INIT = 1,                 // IBV_QPS_INIT
	RDMA_RTR = 2,                  // IBV_QPS_RTR
	RDMA_RTS = 3,                  // IBV_QPS_RTS
	RDMA_ERROR = 6,                // IBV_QPS_ERR
	RDMA_SET_STATE = 1,            // IBV_QP_STATE
	RDMA_SET_ACCESS = 1 << 3,      // IBV_QP_ACCESS_FLAGS
	RDMA_SET_PKEY = 1 << 4,        // IBV_QP_PKEY_INDEX
	RDMA_SET_PORT = 1 << 5,        // IBV_QP_PORT
	RDMA_SET_QKEY = 1 << 6,        // IBV_QP_QKEY
	RDMA_SET_PATH = 1 << 7,        // IBV_QP_AV
	RDMA_SET_MTU = 1 << 8,         // IBV_QP_PATH_MTU
	RDMA_SET_TIMEOUT = 1 << 9,     // IBV_QP_TIMEOUT
	RDMA_SET_RETRIES = 1 << 10,    // IBV_QP_RETRY_CNT
	RDMA_SET_RNR_RETRIES = 1 << 11,// IBV_QP_RNR_RETRY
	RDMA_SET_RQ_PSN = 1 << 12,     // IBV_QP_RQ_PSN
	RDMA_SET_READS = 1 << 13,      // IBV_QP_MAX_QP_RD_ATOMIC
	RDMA_SET_RNR_TIMER = 1 << 15,  // IBV_QP_MIN_RNR_TIMER
	RDMA_SET_SQ_PSN = 1 << 16,     // IBV_QP_SQ_PSN
	RDMA_SET_PEER_READS = 1 << 17, // IBV_QP_MAX_DEST_RD_ATOMIC
	RDMA_SET_PEER = 1 << 20,       // IBV_QP_DEST_QPN
	RDMA_LOCAL_WRITE = 1,          // IBV_ACCESS_LOCAL_WRITE
	RDMA_REMOTE_WRITE = 2,         // IBV_ACCESS_REMOTE_WRITE
	RDMA_REMOTE_READ = 4,          // IBV_ACCESS_REMOTE_READ
	RDMA_FORK_DISABLED = 0,        // IBV_FORK_DISABLED
	RDMA_FLUSHED = 5,              // IBV_WC_WR_FLUSH_ERR
	RDMA_NO_ANSWER = 12,           // IBV_WC_RETRY_EXC_ERR
	RDMA_PORT_ACTIVE = 4,          // IBV_PORT_ACTIVE
	RDMA_ETHERNET = 2,             // IBV_LINK_LAYER_ETHERNET
	RDMA_INFINIBAND = 1,           // IBV_LINK_LAYER_INFINIBAND
	RDMA_ROCE_V2 = 2,              // IBV_GID_TYPE_ROCE_V2
	RDMA_MULTICAST_QPN = 0xffffff,
	RDMA_GRH = 40,                 // sizeof(struct ibv_grh)
	RDMA_CM_UDP = 0x0111,          // RDMA_PS_UDP
	RDMA_CM_JOINED = 12,           // RDMA_CM_EVENT_MULTICAST_JOIN
	RDMA_CM_REFUSED = 13,          // RDMA_CM_EVENT_MULTICAST_ERROR
};

#endif
