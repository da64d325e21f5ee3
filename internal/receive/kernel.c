#include "kernel.h"

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the receive kernel is for little-endian processors"
#endif

_Static_assert(sizeof(struct receive_cqe) == 64, "mlx5_cqe64 has 64 bytes");
_Static_assert(sizeof(struct receive_copy) == 64, "a basic block of a work queue has 64 bytes");

// publish lets the hardware see all earlier writes before any later one, to memory or to a register.
static inline void publish(void)
{
#if defined(__riscv)
	__asm__ volatile("fence w, ow" ::: "memory");
#elif defined(__x86_64__)
	__asm__ volatile("sfence" ::: "memory"); // registers of doorbells may be write-combining
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

// record writes a doorbell record, which the hardware reads from memory.
static inline void record(be32 *doorbell, uint32_t count)
{
	__atomic_store_n(doorbell, receive_be32(count), __ATOMIC_RELEASE);
}

// stray counts a completion that is no chunk, and returns whether it is of a receive all the same.
static int stray(struct receive_worker *w, const struct receive_cqe *cqe)
{
	uint8_t opcode = cqe->op_own >> 4;

	if (opcode == RECEIVE_CQE_RESP_ERR) {
		if (w->errors++ == 0)
			w->syndrome = cqe->syndrome;
		return 1;
	}
	w->foreign++;
	return opcode >= RECEIVE_CQE_RESP_WR_IMM && opcode <= RECEIVE_CQE_RESP_SEND_INV;
}

// ring has the copies executed that were posted, with a completion of the last of them.
static inline void ring(struct receive_worker *w)
{
	struct receive_copy *last = &w->copies[(w->receives - 1) & (w->rq_depth - 1)];

	last->signal = RECEIVE_SIGNAL;
	record(w->copy_record, w->receives & 0xffff);
	publish();
	*w->copy_doorbell = last->head;
}

// recycle learns which copies are done: their slots are free.
static inline void recycle(struct receive_worker *w)
{
	// The hardware overwrites the entry at any time; its end has opcode and index of one completion.
	uint32_t end = __atomic_load_n(&w->copy_cqe->end, __ATOMIC_ACQUIRE), opcode = end >> 28;

	if (opcode == RECEIVE_CQE_REQ)
		w->copied += (uint16_t)(receive_be16((uint16_t)end) + 1 - w->copied);
	else if (opcode != RECEIVE_CQE_INVALID)
		w->copy_syndrome = w->copy_cqe->syndrome;
}

// post writes the copy that empties a slot.
static inline void post(struct receive_copy *copy, uint32_t index, uint8_t opcode, be32 qpn_ds)
{
	copy->index[0] = (uint8_t)(index >> 8);
	copy->index[1] = (uint8_t)index;
	copy->opcode = opcode;
	copy->qpn_ds = qpn_ds;
	copy->signal = 0;
}

// take is the code of both variants: the compiler makes a function for each. Fields that every completion needs
// are in local variables, which the compiler keeps in registers; fields of *w it would have to load again after
// any store.
static inline __attribute__((always_inline)) uint32_t take(struct receive_worker *w, uint32_t limit, const int uc)
{
	const uint32_t wanted = uc ? RECEIVE_CQE_RESP_WR_IMM : RECEIVE_CQE_RESP_SEND_IMM;
	const uint32_t cq_depth = w->cq_depth, rq_depth = w->rq_depth, operation = w->operation, last = w->chunks - 1;
	const uint32_t first = w->completions, end = first + limit;
	const struct receive_cqe *const cqes = w->cqes;
	struct receive_copy *const copies = w->copies;
	uint64_t *const bitmap = w->bitmap;
	uint32_t completions = first, receives = w->receives, missing = w->missing, next = w->next;

	for (; completions != end; completions++) {
		const struct receive_cqe *cqe = &cqes[completions & (cq_depth - 1)];
		const uint32_t op_own = __atomic_load_n(&cqe->end, __ATOMIC_ACQUIRE) >> 24, opcode = op_own >> 4;
		struct receive_copy *copy = &copies[receives & (rq_depth - 1)];
		uint32_t psn;
		uint64_t bit;

		// The owner bit of an entry changes with each round of the ring: is this one written yet?
		if ((op_own & 1) != ((completions & cq_depth) != 0) || opcode == RECEIVE_CQE_INVALID)
			break;
		// Of another operation some high bit remains: one comparison finds it, and PSNs beyond the last chunk.
		psn = receive_be32(cqe->immediate) ^ operation;
		bit = (uint64_t)1 << psn % 64;
		if (opcode != wanted) {
			if (!stray(w, cqe))
				continue;
		} else if (psn > last) {
			w->foreign++;
		} else if (cqe->bytes != (psn == last ? w->last : w->full)) {
			w->malformed++;
		} else if (bitmap[psn / 64] & bit) {
			w->duplicates++;
		} else {
			bitmap[psn / 64] |= bit;
			missing--;
			if (psn != next)
				w->gaps++;
			next = psn + 1;
			if (!uc) {
				post(copy, receives, RECEIVE_WRITE, w->write_ds);
				copy->to = receive_be64(w->buffer + (uint64_t)psn * w->chunk_bytes);
				copy->bytes = psn == last ? w->copy_last : w->copy_full;
			}
			receives++;
			continue;
		}
		if (!uc)
			post(copy, receives, RECEIVE_NOP, w->nop_ds);
		receives++;
	}

	w->missing = missing;
	w->next = next;
	if (completions != first) {
		w->completions = completions;
		record(w->cq_record, completions & 0xffffff);
	}
	if (receives != w->receives) {
		w->receives = receives;
		if (!uc)
			ring(w);
	}
	return completions - first;
}

uint32_t receive_ud(struct receive_worker *w, uint32_t limit)
{
	uint32_t taken = take(w, limit, 0), copied = w->copied;

	// The completions were given back before, so that there is room for those of the receives that are posted now.
	recycle(w);
	if (w->copied != copied)
		record(w->rq_record, (w->copied + w->rq_depth) & 0xffff);
	return taken;
}

uint32_t receive_uc(struct receive_worker *w, uint32_t limit)
{
	uint32_t taken = take(w, limit, 1);

	if (taken > 0)
		record(w->rq_record, (w->receives + w->rq_depth) & 0xffff);
	return taken;
}

void receive_open(struct receive_worker *w, const struct receive_staging *staging)
{
	uint32_t i;

	w->completions = w->receives = w->copied = 0;
	record(w->rq_record, w->rq_depth & 0xffff);
	if (staging == 0) {
		w->copies = 0;
		return;
	}
	w->write_ds = receive_be32(staging->qpn << 8 | 3);
	w->nop_ds = receive_be32(staging->qpn << 8 | 1);
	for (i = 0; i < w->rq_depth; i++) {
		w->copies[i].rkey = receive_be32(staging->rkey);
		w->copies[i].lkey = receive_be32(staging->lkey);
		w->copies[i].from = receive_be64(staging->slots + (uint64_t)i * staging->slot_bytes + RECEIVE_GRH);
	}
}

void receive_start(struct receive_worker *w, uint32_t operation, uint64_t buffer, uint32_t chunks, uint32_t chunk_bytes,
		   uint32_t last_bytes, uint64_t *bitmap, uint32_t missing)
{
	uint32_t header = w->copies != 0 ? RECEIVE_GRH : 0;

	w->operation = operation;
	w->buffer = buffer;
	w->chunks = chunks;
	w->chunk_bytes = chunk_bytes;
	w->copy_full = receive_be32(chunk_bytes);
	w->copy_last = receive_be32(last_bytes);
	w->full = receive_be32(chunk_bytes + header);
	w->last = receive_be32(last_bytes + header);
	w->bitmap = bitmap;
	w->missing = missing;
	w->next = 0;
}

uint32_t receive_missing(const struct receive_worker *w, uint32_t from, uint32_t *count)
{
	uint32_t first = from, end;

	while (first < w->chunks && w->bitmap[first / 64] >> first % 64 & 1)
		first += w->bitmap[first / 64] == UINT64_MAX ? 64 - first % 64 : 1;
	if (first > w->chunks)
		first = w->chunks; // the bits behind the last chunk were set
	for (end = first; end < w->chunks && !(w->bitmap[end / 64] >> end % 64 & 1);)
		end += w->bitmap[end / 64] == 0 ? 64 - end % 64 : 1;
	*count = (end < w->chunks ? end : w->chunks) - first;
	return first;
}
