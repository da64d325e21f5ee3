/* Ring, facts of NCCL 2.30.7 as recorded on 2 and 4 nodes with one GPU each
 * (float32, Simple protocol, two channels at most). Each rank sends to the next.
 * An operation is loops x steps x the messages of a step on each channel; from
 * the second step on a message leaves when the one of the step before is here.
 * Staged: receives are posted for a slot of 1 MiB, the second message of a small
 * step is empty. Registered: one message a slice, posted as large as it is.
 * FLOW(trace, ranks, bytes of the operation, channels, loops, steps, posted, slots, depth, sizes of a step's
 * messages) */
FLOW(RING_ALLGATHER, 2, 1024, 1, 1, 1, 1048576, 4, 4, 512, 0)
FLOW(RING_ALLGATHER, 2, 131072, 2, 1, 1, 1048576, 4, 4, 32768, 0)
FLOW(RING_ALLGATHER, 2, 16777216, 2, 2, 1, 1048576, 4, 4, 1048576, 1048576)
FLOW(RING_ALLGATHER, 4, 1024, 1, 1, 3, 1048576, 4, 4, 256, 0)
FLOW(RING_ALLGATHER, 4, 131072, 2, 1, 3, 1048576, 4, 4, 16384, 0)
FLOW(RING_ALLGATHER, 4, 16777216, 2, 1, 3, 1048576, 4, 4, 1048576, 1048576)
FLOW(RING_REDUCE_SCATTER, 2, 1024, 1, 1, 1, 1048576, 4, 4, 512, 0)
FLOW(RING_REDUCE_SCATTER, 2, 131072, 2, 1, 1, 1048576, 4, 4, 32768, 0)
FLOW(RING_REDUCE_SCATTER, 2, 16777216, 2, 2, 1, 1048576, 4, 4, 1048576, 1048576)
FLOW(RING_REDUCE_SCATTER, 4, 1024, 1, 1, 3, 1048576, 4, 4, 256, 0)
FLOW(RING_REDUCE_SCATTER, 4, 131072, 2, 1, 3, 1048576, 4, 4, 16384, 0)
FLOW(RING_REDUCE_SCATTER, 4, 16777216, 2, 1, 3, 1048576, 4, 4, 1048576, 1048576)
FLOW(RING_ALLREDUCE, 2, 1024, 1, 1, 2, 1048576, 4, 4, 512, 0)
FLOW(RING_ALLREDUCE, 2, 131072, 2, 1, 2, 1048576, 4, 4, 32768, 0)
FLOW(RING_ALLREDUCE, 2, 16777216, 2, 2, 2, 1048576, 4, 4, 1048576, 1048576)
FLOW(RING_ALLREDUCE, 4, 1024, 1, 1, 6, 1048576, 4, 4, 256, 0)
FLOW(RING_ALLREDUCE, 4, 131072, 2, 1, 6, 1048576, 4, 4, 16384, 0)
FLOW(RING_ALLREDUCE, 4, 16777216, 2, 1, 6, 1048576, 4, 4, 1048576, 1048576)
FLOW(RING_REGISTERED, 2, 1048576, 1, 1, 1, 524288, 1, 4, 524288)
FLOW(RING_REGISTERED, 2, 1048576, 2, 1, 2, 131072, 4, 4, 131072, 131072)
FLOW(RING_REGISTERED, 4, 1048576, 1, 1, 3, 262144, 3, 4, 262144)
FLOW(RING_REGISTERED, 4, 1048576, 2, 1, 6, 65536, 12, 4, 65536, 65536)
