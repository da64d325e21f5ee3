package collnet

// Info describes a group.
type Info struct {
	Rank, Size int
	Fabric     Fabric
	Reason     string // why this fabric was chosen
	Interface  string // that multicast uses; empty with SharedMemory
	ChunkBytes int    // what is sent at a time
	// WindowBytes is how far a root sends ahead of the slowest receiver; 0: as far as it likes.
	WindowBytes int
	SIMD        string // instruction set of the sums
	// Notes tell what the group does without, and why, and what has made it slow since it was
	// joined.
	Notes []string
	// Allgather is how Allgathers and Broadcasts travel now: by "multicast", by "unicast" from rank to
	// rank, or through "shared memory"; AllgatherReason says why.
	Allgather, AllgatherReason string
	// Switched says that the next Reduce-Scatter goes through a switch, as far as this rank knows;
	// Switch says which one, or why none.
	Switched bool
	Switch   string
}

// Info returns what the group is now: Notes, Allgather, Switched and their reasons may change, the rest
// does not.
func (g *Group) Info() Info {
	i := g.group.Info()
	return Info{
		Rank: i.Rank, Size: i.Size, Fabric: Fabric(i.Fabric), Reason: i.Reason, Interface: i.Interface,
		ChunkBytes: i.ChunkBytes, WindowBytes: i.WindowBytes, SIMD: i.SIMD, Notes: i.Notes,
		Allgather: i.Allgather, AllgatherReason: i.AllgatherReason,
		Switched: i.ReduceScatter == "switch", Switch: i.ReduceScatterReason,
	}
}
