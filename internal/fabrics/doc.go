// Package fabrics opens what a group's bytes travel by. It finds out what the paths between ranks carry, has all ranks
// agree on one fabric, and opens it on all of them or on none.
//
//	opened, err := (&fabrics.Opener{Mesh: m, Listener: l, Plan: plan}).Open(ctx)
package fabrics
