// Package team is what all ranks of a group conclude from what each has told the others: who is on which host, by which
// way they come to each other, over which fabric, on how many levels, in what order. Each rank concludes for itself,
// and all alike. There is no socket, clock, goroutine or mutex here.
//
//	plan, err := team.New(self, blobs)
package team
