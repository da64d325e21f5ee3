/* The part of MPI that nccl-tests calls, for processes of one host: see mpi.c. Names and meanings are those of the
 * MPI standard 4.1. */
#ifndef MCAST_MPI_H
#define MCAST_MPI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int MPI_Comm;
typedef enum { MPI_DATATYPE_NULL, MPI_BYTE, MPI_INT, MPI_LONG, MPI_LONG_LONG, MPI_INT64_T, MPI_DOUBLE } MPI_Datatype;
typedef enum { MPI_OP_NULL, MPI_SUM, MPI_MIN, MPI_MAX } MPI_Op;

#define MPI_COMM_WORLD 1
#define MPI_SUCCESS 0
#define MPI_IN_PLACE ((void *)-1)

int MPI_Init(int *argc, char ***argv);
int MPI_Finalize(void);
int MPI_Comm_rank(MPI_Comm comm, int *rank);
int MPI_Comm_size(MPI_Comm comm, int *size);
int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *split); /* one color alone */
int MPI_Comm_free(MPI_Comm *comm);
int MPI_Barrier(MPI_Comm comm);
int MPI_Bcast(void *data, int count, MPI_Datatype type, int root, MPI_Comm comm);
int MPI_Gather(const void *send, int count, MPI_Datatype type, void *recv, int recv_count, MPI_Datatype recv_type,
	int root, MPI_Comm comm);
int MPI_Allgather(const void *send, int count, MPI_Datatype type, void *recv, int recv_count, MPI_Datatype recv_type,
	MPI_Comm comm);
int MPI_Allreduce(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm);

#ifdef __cplusplus
}
#endif
#endif
