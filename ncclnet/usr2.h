#ifndef MCAST_USR2_H
#define MCAST_USR2_H

/* mcast_watch_signal makes SIGUSR2 add 1 to an eventfd and then act as it did before, except that it does not end
 * the process. Returns 0 or an errno. It is called once. */
__attribute__((visibility("hidden"))) int mcast_watch_signal(int fd);

#endif
