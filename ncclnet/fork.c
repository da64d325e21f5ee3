#include "fork.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "error_rank.h"
#include "mcast.h"

int mcast_fork_child;
static long loader; /* process that loaded the library */

/* The inode of each socket that a child closes, by its descriptor; 0: none.
 * Nobody takes an entry out: a descriptor that stands for another file by then
 * has another inode. Those beyond the end of the table stay open in children. */
static ino_t sockets[1 << 16];
static int sockets_end;

static ino_t socket_inode(int fd)
{
	struct stat s;

	return fstat(fd, &s) == 0 && S_ISSOCK(s.st_mode) ? s.st_ino : 0;
}

void mcast_close_in_child(int fd)
{
	int end;

	if (fd < 0 || fd >= (int)(sizeof(sockets) / sizeof(sockets[0])))
		return;
	__atomic_store_n(&sockets[fd], socket_inode(fd), __ATOMIC_RELAXED);
	end = __atomic_load_n(&sockets_end, __ATOMIC_RELAXED);
	while (end <= fd && !__atomic_compare_exchange_n(&sockets_end, &end, fd + 1, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
		;
}

/* Other threads of the parent are not here, so this calls only functions that a
 * signal handler may call. */
static void in_child(void)
{
	int fd, end = __atomic_load_n(&sockets_end, __ATOMIC_ACQUIRE), before = errno;
	ino_t inode;

	mcast_fork_child = 1;
	for (fd = 0; fd < end; fd++) {
		inode = __atomic_load_n(&sockets[fd], __ATOMIC_RELAXED);
		if (inode != 0 && inode == socket_inode(fd))
			close(fd);
	}
	errno = before;
}

/* Neither vfork() nor posix_spawn() runs the handler: their child shares the
 * parent's memory until it executes a program, and must not mark the parent. */
__attribute__((constructor)) static void watch_forks(void)
{
	loader = getpid();
	pthread_atfork(NULL, NULL, in_child);
}

int mcast_forked_text(char *err, size_t errlen)
{
	if (err != NULL && errlen > 0)
		snprintf(err, errlen,
			"this process (%ld) is a fork of the one that loaded the library (%ld), and the "
			"library does not survive a fork: fork before it is loaded, or start the process "
			"with exec or spawn", (long)getpid(), loader);
	mcast_set_error_rank(-1);
	return MCAST_E_UNAVAILABLE;
}
