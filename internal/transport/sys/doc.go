// Package sys holds the few Linux system calls that the socket fabrics share:
// message batches with headers outside Go's heap, taking over the descriptor of
// a connection, and waiting on many descriptors at once.
//
// Calls that cannot block are made without telling Go's scheduler, because
// they take microseconds and come in millions; calls that may block tell it.
package sys
