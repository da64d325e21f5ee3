// A NIC for the receive kernel, without a library: it completes the chunks of a buffer of 8 MiB in order and executes
// the copies. count.py runs it under an emulator, which counts the instructions of the kernel alone.
#include "../../internal/receive/kernel.h"

enum { DEPTH = 256, LIMIT = 64, BUFFER = 8 << 20, SLOT = 4160, OPERATION = 0x2a << 24 };

static struct receive_cqe cqes[DEPTH], copy_cqe;
static struct receive_copy copies[DEPTH];
static be32 cq_record, records[2];
static volatile uint64_t copy_doorbell;
static _Alignas(64) unsigned char slots[DEPTH * SLOT], buffer[BUFFER];
static uint64_t bitmap[BUFFER / 64 / 64];
static struct receive_worker worker;

// A chunk's bytes say which it is.
static uint64_t pattern(uint32_t psn, uint32_t word) { return ((uint64_t)psn << 32 | word) * 0x9e3779b97f4a7c15; }

static void fill(void *at, uint32_t psn, uint32_t bytes)
{
	uint64_t *words = at;

	for (uint32_t i = 0; i < bytes / 8; i++)
		words[i] = pattern(psn, i);
}

// complete has a chunk arrive, and the next entry of the completion queue say so.
static void complete(uint32_t psn, uint32_t chunk, int uc)
{
	struct receive_cqe *cqe = &cqes[psn % DEPTH];
	uint32_t bytes = chunk + (uc ? 0 : RECEIVE_GRH);
	uint8_t opcode = uc ? RECEIVE_CQE_RESP_WR_IMM : RECEIVE_CQE_RESP_SEND_IMM;

	fill(uc ? buffer + psn * chunk : slots + psn % DEPTH * SLOT + RECEIVE_GRH, psn, chunk);
	cqe->immediate = receive_be32(OPERATION | psn);
	cqe->bytes = receive_be32(bytes);
	cqe->index = receive_be16((uint16_t)psn);
	__atomic_store_n(&cqe->op_own, (uint8_t)(opcode << 4 | (psn / DEPTH & 1)), __ATOMIC_RELEASE);
}

// copy executes the copies up to one, and completes the last of them. It returns 0 if a copy is not the expected one.
static int copy(uint32_t from, uint32_t to)
{
	for (; from != to; from++) {
		const struct receive_copy *c = &copies[from % DEPTH];
		const uint64_t *source = (const uint64_t *)(uintptr_t)receive_be64(c->from);
		uint64_t *target = (uint64_t *)(uintptr_t)receive_be64(c->to);

		if ((c->index[0] << 8 | c->index[1]) != (int)(from & 0xffff) || c->opcode != RECEIVE_WRITE ||
			(c->signal != 0) != (from + 1 == to))
			return 0;
		for (uint32_t i = 0; i < receive_be32(c->bytes) / 8; i++)
			target[i] = source[i];
	}
	copy_cqe.index = receive_be16((uint16_t)(to - 1));
	copy_cqe.op_own = RECEIVE_CQE_REQ << 4;
	return 1;
}

// run receives the buffer, so many chunks at a time, and returns 0 if all is right: every byte, and every record.
int run(int uc, uint32_t batch, uint32_t chunk)
{
	static struct receive_staging staging = { .slot_bytes = SLOT, .lkey = 1, .rkey = 2, .qpn = 3 };
	uint32_t chunks = BUFFER / chunk, taken = 0;

	staging.slots = (uintptr_t)slots;
	for (uint32_t i = 0; i < DEPTH; i++)
		cqes[i].op_own = RECEIVE_CQE_INVALID << 4 | 1;
	copy_cqe.op_own = RECEIVE_CQE_INVALID << 4;
	worker.cqes = cqes;
	worker.cq_record = &cq_record;
	worker.cq_depth = worker.rq_depth = DEPTH;
	worker.rq_record = &records[0];
	worker.copies = copies;
	worker.copy_cqe = &copy_cqe;
	worker.copy_record = &records[1];
	worker.copy_doorbell = &copy_doorbell;
	receive_open(&worker, uc ? 0 : &staging);
	receive_start(&worker, OPERATION, (uintptr_t)buffer, chunks, chunk, chunk, bitmap, chunks);

	while (taken < chunks) {
		uint32_t before = taken;

		for (uint32_t i = 0; i < batch && before + i < chunks; i++)
			complete(before + i, chunk, uc);
		taken += uc ? receive_uc(&worker, LIMIT) : receive_ud(&worker, LIMIT);
		if (taken == before || (!uc && !copy(before, taken)))
			return 1;
	}
	while (!receive_done(&worker))
		if (uc || receive_ud(&worker, LIMIT) != 0)
			return 2;
	if (receive_be32(cq_record) != chunks || receive_be32(records[0]) != chunks + DEPTH ||
	    (!uc && receive_be32(records[1]) != chunks))
		return 3;
	if (worker.duplicates | worker.gaps | worker.foreign | worker.malformed | worker.errors)
		return 4;
	for (uint32_t psn = 0; psn < chunks; psn++)
		for (uint32_t i = 0; i < chunk / 8; i++)
			if (((uint64_t *)(void *)(buffer + psn * chunk))[i] != pattern(psn, i))
				return 5;
	return 0;
}
