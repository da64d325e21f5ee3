package multicast

// Awaited is how long this rank has waited for another one, by reason, in nanoseconds since New. The time is booked
// when a wait ends, on the rank that ended it: when a message comes, or the last chunk of a shard, but not with each
// chunk. So of two late ranks the later one gets the time by which it is later. Time in which an operation stood behind
// older ones is nobody's.
type Awaited struct {
	Barrier   uint64 // for its message of a barrier, this rank having entered that
	Chunks    uint64 // for its shard; of the own rank: until the own shard was sent
	Credit    uint64 // with chunks to send, for its credit
	Handshake uint64 // for its message that it has every chunk
	Asked     uint64 // chunks of its shards that were asked for
}

// waited returns what has passed since an operation's last wait ended, and ends another one now.
func (p *op) waited(now, freed Time) uint64 {
	since := max(p.waits, freed)
	p.waits = now
	return uint64(max(0, now-since))
}
