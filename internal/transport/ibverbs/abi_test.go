package ibverbs

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

//go:embed abi.h
var declarations []byte

// header compares declarations of ours with those of a header, by a C compiler.
type header struct {
	text strings.Builder
	cc   string
}

// against begins a comparison, unless the header, of a package, is not installed.
func against(t *testing.T, name, of string) *header {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	if _, err := os.Stat("/usr/include/" + name); err != nil {
		t.Skipf("no <%s> (Debian: %s)", name, of)
	}
	h := &header{cc: cc}
	fmt.Fprintf(&h.text, "#include <%s>\n#include \"abi.h\"\n", name)
	return h
}

func (h *header) same(ours, theirs string) {
	fmt.Fprintf(&h.text, "_Static_assert((%s) == (%s), %q);\n", ours, theirs, ours)
}

func (h *header) size(ours, theirs string) { h.same("sizeof("+ours+")", "sizeof("+theirs+")") }

func (h *header) offset(ours, field, theirs, theirField string) {
	h.same("offsetof("+ours+", "+field+")", "offsetof("+theirs+", "+theirField+")")
}

func (h *header) compile(t *testing.T) {
	t.Helper()
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "abi.h"), declarations, 0o600))
	source := filepath.Join(folder, "abi.c")
	require.NoError(t, os.WriteFile(source, []byte(h.text.String()), 0o600))
	out, err := exec.Command(h.cc, "-std=gnu11", "-fsyntax-only", source).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// TestCMABI holds abi.h to the header of librdmacm.
func TestCMABI(t *testing.T) {
	h := against(t, "rdma/rdma_cma.h", "librdmacm-dev")
	h.size("rdma_cm_channel", "struct rdma_event_channel")
	h.offset("rdma_cm_channel", "fd", "struct rdma_event_channel", "fd")
	for field := range strings.FieldsSeq("verbs channel qp port_num") {
		h.offset("rdma_cm_id", field, "struct rdma_cm_id", field)
	}
	for field := range strings.FieldsSeq("id event status") {
		h.offset("rdma_cm_event", field, "struct rdma_cm_event", field)
	}
	for field := range strings.FieldsSeq("ud.ah_attr ud.qkey") {
		h.offset("rdma_cm_event", field, "struct rdma_cm_event", "param."+field)
	}
	h.same("RDMA_CM_UDP", "RDMA_PS_UDP")
	h.same("RDMA_CM_JOINED", "RDMA_CM_EVENT_MULTICAST_JOIN")
	h.same("RDMA_CM_REFUSED", "RDMA_CM_EVENT_MULTICAST_ERROR")
	h.compile(t)
}

// TestABI holds abi.h to the header of libibverbs: sizes, offsets and constants.
func TestABI(t *testing.T) {
	h := against(t, "infiniband/verbs.h", "libibverbs-dev")
	for ours, theirs := range map[string]string{
		"rdma_sge": "struct ibv_sge", "rdma_send_wr": "struct ibv_send_wr", "rdma_recv_wr": "struct ibv_recv_wr",
		"rdma_wc":      "struct ibv_wc",
		"rdma_context": "struct ibv_context", "rdma_pd": "struct ibv_pd", "rdma_mr": "struct ibv_mr",
		"rdma_channel": "struct ibv_comp_channel",
		"rdma_qp_cap":  "struct ibv_qp_cap", "rdma_qp_init": "struct ibv_qp_init_attr",
		"rdma_route":   "struct ibv_global_route",
		"rdma_ah_attr": "struct ibv_ah_attr", "rdma_qp_attr": "struct ibv_qp_attr", "rdma_port_attr": "struct ibv_port_attr",
		"rdma_gid_entry": "struct ibv_gid_entry",
	} {
		h.size(ours, theirs)
	}
	for ours, fields := range map[[2]string]string{
		{"rdma_sge", "struct ibv_sge"}: "addr length lkey",
		{"rdma_send_wr",
			"struct ibv_send_wr"}: "wr_id next sg_list num_sge opcode send_flags imm_data wr.ud.ah wr.ud.remote_qpn " +
			"wr.ud.remote_qkey " +
			"wr.rdma.remote_addr wr.rdma.rkey",
		{"rdma_recv_wr", "struct ibv_recv_wr"}: "wr_id next sg_list num_sge",
		{"rdma_wc",
			"struct ibv_wc"}: "wr_id status opcode vendor_err byte_len imm_data qp_num src_qp wc_flags",
		{"rdma_context",
			"struct ibv_context"}: "device ops.poll_cq ops.req_notify_cq ops.post_send ops.post_recv cmd_fd",
		{"rdma_mr", "struct ibv_mr"}:                "addr length lkey rkey",
		{"rdma_channel", "struct ibv_comp_channel"}: "fd",
		{"rdma_cq", "struct ibv_cq"}:                "context channel cqe",
		{"rdma_qp", "struct ibv_qp"}:                "context pd send_cq recv_cq qp_num",
		{"rdma_qp_init", "struct ibv_qp_init_attr"}: "send_cq recv_cq srq cap qp_type sq_sig_all",
		{"rdma_ah_attr",
			"struct ibv_ah_attr"}: "grh grh.dgid grh.sgid_index grh.hop_limit grh.traffic_class dlid is_global port_num",
		{"rdma_qp_attr",
			"struct ibv_qp_attr"}: "qp_state path_mtu qkey rq_psn sq_psn dest_qp_num qp_access_flags cap ah_attr pkey_index " +
			"max_rd_atomic max_dest_rd_atomic min_rnr_timer port_num timeout retry_cnt rnr_retry",
		{"rdma_port_attr", "struct ibv_port_attr"}: "state active_mtu gid_tbl_len max_msg_sz lid link_layer",
		{"rdma_gid_entry", "struct ibv_gid_entry"}: "gid gid_index gid_type ndev_ifindex",
	} {
		for field := range strings.FieldsSeq(fields) {
			h.offset(ours[0], field, ours[1], field)
		}
	}
	for ours, theirs := range map[string]string{
		"RDMA_WRITE": "IBV_WR_RDMA_WRITE", "RDMA_WRITE_IMMEDIATE": "IBV_WR_RDMA_WRITE_WITH_IMM", "RDMA_SEND": "IBV_WR_SEND",
		"RDMA_READ": "IBV_WR_RDMA_READ", "RDMA_SIGNALED": "IBV_SEND_SIGNALED",
		"RDMA_INLINE": "IBV_SEND_INLINE", "RDMA_FORK_DISABLED": "IBV_FORK_DISABLED",
		"RDMA_RECEIVED": "IBV_WC_RECV", "RDMA_QPT_RC": "IBV_QPT_RC", "RDMA_QPT_UD": "IBV_QPT_UD", "RDMA_INIT": "IBV_QPS_INIT",
		"RDMA_RTR": "IBV_QPS_RTR", "RDMA_RTS": "IBV_QPS_RTS", "RDMA_ERROR": "IBV_QPS_ERR", "RDMA_SET_STATE": "IBV_QP_STATE",
		"RDMA_SET_ACCESS": "IBV_QP_ACCESS_FLAGS", "RDMA_SET_PKEY": "IBV_QP_PKEY_INDEX", "RDMA_SET_PORT": "IBV_QP_PORT",
		"RDMA_SET_QKEY": "IBV_QP_QKEY", "RDMA_SET_PATH": "IBV_QP_AV", "RDMA_SET_MTU": "IBV_QP_PATH_MTU",
		"RDMA_SET_TIMEOUT": "IBV_QP_TIMEOUT",
		"RDMA_SET_RETRIES": "IBV_QP_RETRY_CNT", "RDMA_SET_RNR_RETRIES": "IBV_QP_RNR_RETRY",
		"RDMA_SET_RQ_PSN": "IBV_QP_RQ_PSN",
		"RDMA_SET_READS":  "IBV_QP_MAX_QP_RD_ATOMIC", "RDMA_SET_RNR_TIMER": "IBV_QP_MIN_RNR_TIMER",
		"RDMA_SET_SQ_PSN":     "IBV_QP_SQ_PSN",
		"RDMA_SET_PEER_READS": "IBV_QP_MAX_DEST_RD_ATOMIC", "RDMA_SET_PEER": "IBV_QP_DEST_QPN",
		"RDMA_LOCAL_WRITE": "IBV_ACCESS_LOCAL_WRITE", "RDMA_REMOTE_WRITE": "IBV_ACCESS_REMOTE_WRITE",
		"RDMA_REMOTE_READ": "IBV_ACCESS_REMOTE_READ",
		"RDMA_FLUSHED":     "IBV_WC_WR_FLUSH_ERR", "RDMA_NO_ANSWER": "IBV_WC_RETRY_EXC_ERR",
		"RDMA_PORT_ACTIVE": "IBV_PORT_ACTIVE", "RDMA_ETHERNET": "IBV_LINK_LAYER_ETHERNET",
		"RDMA_INFINIBAND": "IBV_LINK_LAYER_INFINIBAND",
		"RDMA_ROCE_V2":    "IBV_GID_TYPE_ROCE_V2", "RDMA_GRH": "sizeof(struct ibv_grh)",
	} {
		h.same(ours, theirs)
	}
	h.compile(t)
}

// TestNoLibrary: the error names the missing library and how to get it.
func TestNoLibrary(t *testing.T) {
	err := load("libibverbs.so.of-nobody")
	require.ErrorIs(t, err, fabric.ErrUnavailable)
	require.ErrorContains(t, err, "libibverbs.so.of-nobody cannot be loaded")
	require.ErrorContains(t, err, "apt install libibverbs1")
}
