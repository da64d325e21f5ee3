// Package nodes simulates N hosts of K ranks (docs/explain/nodes.md, decision 0044): what crosses the hosts'
// links in an Allgather, a Reduce-Scatter and both at once, and how long that takes.
//
// Nodes are K columns of N ranks, all of them on one network of N hosts, each a network.Share: the
// engines that ship, sim.Scenario for an Allgather, reduction.Config through switches that sum and
// reduction.Direct without. Every host has one link, which the ranks of its K columns share.
//
//	host 0   (0,0) (0,1) ... (0,K-1)   one link
//	host 1   (1,0) (1,1) ... (1,K-1)   one link
//	           |     |          |
//	         column column    column: N ranks, a multicast tree, a Reduce-Scatter
//
// Flat is one job of all NK ranks, each equal. There a host is a switch that its ranks hang on, with
// one uplink, its link; ranks' own links are memory, much faster. So are the rings that both are
// compared with: through all ranks, host after host.
//
// # What is simplified
//
// Memory takes no time with nodes: a column's rank brings its own input to a Reduce-Scatter, and this stands for the
// sum of its host's ranks; when a column has gathered a shard, all ranks have it. Steps are whole shards: in life,
// segments of 256 KiB overlap memory with the network. So times are those of the network alone, and they are compared
// with the time that the bytes take on the links.
//
// At scale shards are small, and latency with them: a shard of 16 KiB with 16 ns a hop is to the model
// one of 512 KiB with 500 ns, in packets that are as much larger. Headers count as on packets of 4 KiB.
//
// Hosts of nodes are on a fat tree, those of flat ranks and of rings on one switch, which costs them
// nothing: their routes have the fewest hops, and no two collide.
package nodes
