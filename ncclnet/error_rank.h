#ifndef MCAST_ERROR_RANK_H
#define MCAST_ERROR_RANK_H

/* mcast_set_error_rank sets what mcast_error_rank returns on this thread: Go calls it on the thread of the caller. */
__attribute__((visibility("hidden"))) void mcast_set_error_rank(int rank);

#endif
