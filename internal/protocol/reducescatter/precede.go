package reducescatter

// An Allgather and a Reduce-Scatter at once fill all links if one part in P of the bytes that a rank sends is its own
// shard, multicast, and the rest are contributions. Operations of all ranks at once take turns accordingly
// (fabric.Link.Ahead). NCCL cuts both into windows in the order of ranks, so that one rank at a time multicasts and one
// at a time is reduced to. Where both are at the same rank, each loads the links that the other leaves idle. Where they
// are not, both want the link of the rank that multicasts, and the one further in the order must wait until the other
// has come to it. A rank multicasts only when its own turn has come, so its own number says how far the Allgather is.

// precedes reports whether contributions for an owner go before the multicast of a rank: the Reduce is behind, by the
// shorter way around.
func precedes(owner, rank, ranks int) bool {
	ahead := (owner - rank + ranks) % ranks
	return 2*ahead > ranks || 2*ahead == ranks && owner < rank
}
