// Package bootstrap brings the ranks of a group together: the rendezvous at which they exchange blobs, the listener
// where each takes the connections of its peers, and the ways by which they reach each other.
package bootstrap
