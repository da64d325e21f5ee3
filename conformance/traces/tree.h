/* Tree Allreduce, facts of NCCL 2.30.7 as recorded on 4 nodes with one GPU each:
 * two trees, receives posted for 512 KiB, up to 8 in flight. A rank sends up when
 * all of its children's message is here, and down when its parent's is. */
FLOW(TREE_ALLREDUCE, 4, 1024, 1, 1, 1, 524288, 8, 8, 1024)
FLOW(TREE_ALLREDUCE, 4, 131072, 2, 1, 1, 524288, 8, 8, 65536)
FLOW(TREE_ALLREDUCE, 4, 16777216, 2, 16, 1, 524288, 8, 8, 524288)
