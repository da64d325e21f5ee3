package baseline

// MemoryConfig says what state is counted for: one communicator of Ranks that
// gathers Bytes a rank.
type MemoryConfig struct {
	Ranks       int
	Bytes       int64 // a rank's shard
	Chunk       int   // bytes that a bit of our bitmap stands for; 0: 4096
	Ports       int   // of a switch; 0: 64
	Window      int   // packets of a bandwidth-delay product; 0: 500, SRNIC's (100 Gbit/s, 40 us, 1 KiB)
	Connections int   // that a host has; 0: one to each other rank
}

// MemoryRow is the transport state of one design.
type MemoryRow struct {
	Name  string
	Where string // where the memory is: NIC, switch or host
	Per   string // what there is one of
	Bytes int64  // of one
	Count int64
	Total int64
}

// What the papers give, in bytes.
const (
	commodityContext = 375 // of an RC connection, ConnectX-5 (SRNIC, NSDI 23, 2.2)
	srnicContext     = 210 // of a connection (3.2.1)
	srnicQueueCache  = 2 * 8 * 64
	srnicOutstanding = 24             // an entry of the table of outstanding requests
	srnicBitmaps     = 5              // bits a packet of a window, one in each bitmap
	srnicReorder     = 1 << 20 / 1000 // of the reordering buffer, a packet: 0.5 MB a connection
	ringConnections  = 2              // our reliable path (Khalilov et al., SC24, III-D)
)

// GleamTable returns the bytes of a Gleam switch's table for a group with
// members behind so many ports. The paper gives a total, 0.92 MB for 1K groups
// of as many ports as a switch has; that it means the 64 ports of its
// simulations is our reading.
func GleamTable(ports int) int64 {
	const groups, size, most = 1 << 10, 0.92 * (1 << 20), 64
	return int64(float64(size*float64(ports)/(groups*most)) + 0.5)
}

// BitmapBytes returns the size of the bitmap of an Allgather, which is all the
// state that our receive path keeps for ordering and loss.
func BitmapBytes(ranks int, shard int64, chunk int) int64 {
	chunks := (shard + int64(chunk) - 1) / int64(chunk) * int64(ranks)
	return (chunks + 63) / 64 * 8
}

// Memory compares designs: go-back-N and selective repeat as commodity NICs
// would hold them, SRNIC, Gleam, and ours.
func Memory(c MemoryConfig) []MemoryRow {
	setDefault(&c.Chunk, 4096)
	setDefault(&c.Ports, 64)
	setDefault(&c.Window, 500)
	setDefault(&c.Connections, c.Ranks-1)
	n, window := int64(c.Connections), int64(c.Window)
	tracking := (srnicBitmaps*window+7)/8 + srnicOutstanding*window + srnicQueueCache
	rows := []MemoryRow{
		{Name: "go-back-N, commodity RC", Where: "NIC", Per: "connection", Bytes: commodityContext, Count: n},
		{
			Name: "selective repeat, all state on chip", Where: "NIC", Per: "connection",
			Bytes: srnicContext + tracking + srnicReorder*window, Count: n,
		},
		{
			Name: "selective repeat, in-place reordering", Where: "NIC", Per: "connection", Bytes: srnicContext + tracking,
			Count: n,
		},
		{Name: "SRNIC", Where: "NIC", Per: "connection", Bytes: srnicContext, Count: n},
		{Name: "Gleam, table", Where: "switch", Per: "group", Bytes: GleamTable(c.Ports), Count: 1},
		{Name: "Gleam, RC", Where: "NIC", Per: "group", Bytes: commodityContext, Count: 1},
		{Name: "ours, bitmap", Where: "host", Per: "communicator", Bytes: BitmapBytes(c.Ranks, c.Bytes, c.Chunk), Count: 1},
		{Name: "ours, reliable ring", Where: "NIC", Per: "connection", Bytes: commodityContext, Count: ringConnections},
	}
	for i := range rows {
		rows[i].Total = rows[i].Bytes * rows[i].Count
	}
	return rows
}
