/* Send/Recv between all pairs (all-to-all), facts of NCCL 2.30.7 as recorded on 4
 * nodes with one GPU each: 128 KiB at a time, up to 8 in flight, out of one region
 * shared by all comms; registered: the whole message from the user's buffer. */
FLOW(SENDRECV, 4, 1024, 1, 1, 1, 131072, 8, 8, 256)
FLOW(SENDRECV, 4, 131072, 1, 1, 1, 131072, 8, 8, 32768)
FLOW(SENDRECV, 4, 16777216, 1, 32, 1, 131072, 8, 8, 131072)
FLOW(SENDRECV_REGISTERED, 4, 16777216, 1, 1, 1, 4194304, 1, 8, 4194304)
