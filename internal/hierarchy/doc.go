// Package hierarchy posts the operations of a group to its levels: the ranks that the network joins and, where hosts
// hold several ranks, the ranks of this host. A composer makes an operation of steps: flat of one, nested of steps on
// both levels.
package hierarchy
