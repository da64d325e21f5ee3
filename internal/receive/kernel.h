// The receive kernel turns the completions of a queue pair into placed chunks. It is what a worker thread runs for its
// subgroup, on a SmartNIC's core or a host's: one file of C11 without a library, for any 64-bit little-endian
// processor. A worker has its own queues and its own bitmap and shares nothing with others (Khalilov et al., SC24,
// IV-C). It has two variants:
//
//   UD  A datagram lands in a staging slot. The kernel posts a copy from there to the user's buffer, which a DMA engine
//       or a loop on the host executes, and posts the slot to the receive queue again when it was copied.
//   UC  An RDMA Write with immediate lands in the user's buffer itself; a chunk may be of several packets, and
//       completes if all of them came. The kernel only records it.
//
// Layouts and constants of hardware are those of ConnectX, as rdma-core's providers/mlx5/mlx5dv.h declares them; each
// says which. Fields of type be16, be32 and be64 are big-endian.
#ifndef MCAST_RECEIVE_KERNEL_H
#define MCAST_RECEIVE_KERNEL_H

#include <stdint.h>

typedef uint16_t be16;
typedef uint32_t be32;
typedef uint64_t be64;

// To big-endian and back: a compiler makes these a single instruction where the processor has one, and needs no library
// elsewhere. Neighbours change places: bytes, then halves.
static inline be16 receive_be16(uint16_t x) { return (be16)(x << 8 | x >> 8); }

static inline be32 receive_be32(uint32_t x)
{
	x = (x & 0x00ff00ff) << 8 | (x >> 8 & 0x00ff00ff);
	return x << 16 | x >> 16;
}

static inline be64 receive_be64(uint64_t x)
{
	x = (x & 0x00ff00ff00ff00ff) << 8 | (x >> 8 & 0x00ff00ff00ff00ff);
	x = (x & 0x0000ffff0000ffff) << 16 | (x >> 16 & 0x0000ffff0000ffff);
	return x << 32 | x >> 32;
}

// A completion: mlx5_cqe64, and mlx5_err_cqe for the syndrome.
struct receive_cqe {
	uint8_t of_no_use_here[36];
	be32 immediate; // imm_inval_pkey
	uint8_t app[4];
	be32 bytes; // byte_cnt; of UD with the GRH
	uint8_t timestamp[7];
	uint8_t syndrome; // of an error
	be32 qpn;
	union {
		struct {
			be16 index; // wqe_counter
			uint8_t signature;
			uint8_t op_own; // opcode << 4 | format << 2 | solicited << 1 | owner
		};
		uint32_t end; // the three at once
	};
};

// Opcodes of a completion: MLX5_CQE_*.
enum {
	RECEIVE_CQE_REQ = 0,
	RECEIVE_CQE_RESP_WR_IMM = 1,
	RECEIVE_CQE_RESP_SEND = 2,
	RECEIVE_CQE_RESP_SEND_IMM = 3,
	RECEIVE_CQE_RESP_SEND_INV = 4,
	RECEIVE_CQE_REQ_ERR = 13,
	RECEIVE_CQE_RESP_ERR = 14,
	RECEIVE_CQE_INVALID = 15, // the entry was never written
};

// The operation of a copy's descriptor: MLX5_OPCODE_*.
enum {
	RECEIVE_NOP = 0x00,
	RECEIVE_WRITE = 0x08,
};

// RECEIVE_SIGNAL asks for a completion of a copy: MLX5_WQE_CTRL_CQ_UPDATE.
enum { RECEIVE_SIGNAL = 8 };

// RECEIVE_GRH is what precedes a datagram in its staging slot: the global route header of UD.
enum { RECEIVE_GRH = 40 };

// A copy is an RDMA Write of 64 bytes: mlx5_wqe_ctrl_seg, mlx5_wqe_raddr_seg, mlx5_wqe_data_seg. On a SmartNIC its
// queue pair is connected to itself, so that the NIC's own DMA engine executes it. A nop is its first segment alone.
struct receive_copy {
	union {
		struct {
			uint8_t modifier, index[2], opcode; // opmod_idx_opcode
			be32 qpn_ds;                        // queue pair (24 bits), length in units of 16 bytes
		};
		uint64_t head; // the value to write to the doorbell register
	};
	uint8_t signature, stream[2];
	uint8_t signal; // fm_ce_se
	be32 immediate;

	be64 to; // raddr
	be32 rkey;
	be32 reserved;

	be32 bytes; // byte_count
	be32 lkey;
	be64 from; // addr

	uint8_t pad[16];
};

// A worker's state. The user fills in the queues and calls receive_open once, and receive_start for each operation.
// Depths are powers of two; the completion queue is at least as deep as the receive queue.
struct receive_worker {
	// The completion queue. It is created without compressed entries and without data scattered to them.
	const struct receive_cqe *cqes;
	be32 *cq_record;      // doorbell record: completions that were taken
	uint32_t cq_depth;
	uint32_t completions; // taken

	// The receive queue. Receive i is of staging slot i modulo its depth, so that its descriptors are written once.
	uint32_t rq_depth; // at most 32768
	uint32_t receives; // that the hardware has completed
	be32 *rq_record;   // doorbell record: receives that were posted

	// The operation.
	uint64_t *bitmap;    // a bit a chunk: it is there
	uint32_t operation;  // the immediate of the first chunk
	uint32_t chunks;     // at most 1 << 31
	be32 full, last;     // what the completion of a chunk, and of the last one, says of bytes
	uint32_t missing;    // chunks that are not there: what recovery must fetch if no more come
	uint32_t next;       // the chunk behind the one that came last

	// Copies, UD only. Copy i empties the slot of receive i, so that one counter says which slots are free.
	struct receive_copy *copies;          // rq_depth
	const struct receive_cqe *copy_cqe;   // their completion queue, collapsed: each overwrites the one entry
	be32 *copy_record;                    // doorbell record: copies that were posted
	volatile uint64_t *copy_doorbell;     // the doorbell register: takes the head of the last copy
	uint32_t copied;                      // copies that are done
	be32 write_ds, nop_ds;                // qpn_ds of the two
	uint64_t buffer;                      // where the first chunk belongs
	uint32_t chunk_bytes;
	be32 copy_full, copy_last;            // bytes to copy

	// Counters.
	uint32_t duplicates;
	uint32_t gaps;      // times that a chunk was not the one behind the last: lost, or late
	uint32_t foreign;   // of another operation or another kind, or beyond the last chunk
	uint32_t malformed; // of another length
	uint32_t errors;    // receives that failed: the queue pair is of no use any more
	uint8_t syndrome;   // of the first of them
	uint8_t copy_syndrome; // not 0: copies fail, so that no slot becomes free
};

// The parameters of copies for receive_open.
struct receive_staging {
	uint64_t slots;      // the address of the first
	uint32_t slot_bytes; // at least RECEIVE_GRH and a chunk
	uint32_t lkey;       // of the slots
	uint32_t rkey;       // of the user's buffer
	uint32_t qpn;        // of the copies' queue pair
};

// receive_open makes a worker ready. Its queues are filled in, and its receives are all posted, none completed. UC has
// no staging: NULL.
void receive_open(struct receive_worker *w, const struct receive_staging *staging);

// receive_start begins an operation. The chunk of number PSN, from 0, has the immediate operation | PSN: the
// operation has zeros where PSNs have bits, for at least as many PSNs as there are chunks. Every chunk is of
// chunk_bytes, the last of last_bytes. The bitmap has a bit a chunk, in words of 64, all zero but for chunks that
// other workers receive: missing says how many are left.
void receive_start(struct receive_worker *w, uint32_t operation, uint64_t buffer, uint32_t chunks, uint32_t chunk_bytes,
		   uint32_t last_bytes, uint64_t *bitmap, uint32_t missing);

// receive_ud and receive_uc take up to limit completions and return how many they took; doorbells are rung once for all
// of them. UD also sees to copies that are done, so that it is to be called until receive_done.
uint32_t receive_ud(struct receive_worker *w, uint32_t limit);
uint32_t receive_uc(struct receive_worker *w, uint32_t limit);

// receive_done says whether every chunk is at its place in the buffer.
static inline int receive_done(const struct receive_worker *w)
{
	return w->missing == 0 && (w->copies == 0 || w->copied == w->receives);
}

// receive_missing finds the first run of missing chunks from a PSN on, for recovery to fetch: it returns its first
// PSN and, in count, its length. A return of w->chunks says that there is none.
uint32_t receive_missing(const struct receive_worker *w, uint32_t from, uint32_t *count);

#endif
