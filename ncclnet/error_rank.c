#include "error_rank.h"

#include "mcast.h"

static __thread int error_rank = -1;

int mcast_error_rank(void)
{
	return error_rank;
}

void mcast_set_error_rank(int rank)
{
	error_rank = rank;
}
