// Package hostnet has all that a host offers a rank: its identity, its interfaces, connections, fabrics for data, and
// memory that ranks of the host share. Kernel is the Network of a process; internal/lab/world has one in virtual time.
package hostnet
