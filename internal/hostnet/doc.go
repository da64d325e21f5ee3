// Package hostnet is what a host offers a rank: who it is, its interfaces, connections, what data travel by, and memory
// that ranks of the host share. Kernel is that of a process; internal/lab/world has one in virtual time.
package hostnet
