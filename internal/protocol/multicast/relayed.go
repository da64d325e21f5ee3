package multicast

// relayAhead bounds how many chunks of its own a root has waiting to be relayed, so that they and
// those of others go by turns.
const relayAhead = 64

// stretch is consecutive chunks that are to be relayed.
type stretch struct {
	chunkRange
	seq   uint32
	rank  int  // that they go to
	own   bool // the shard is this rank's, and they go to no further rank
	probe bool // they are multicast, too
}

// follows reports whether a stretch goes on where another one ends.
func (s *stretch) follows(before *stretch) bool {
	expected := *before
	expected.from, expected.to = before.to, s.to
	return *s == expected
}

// relayed are the chunks that other ranks are to be sent, in the order in which they came, or in which
// this rank would have multicast them.
type relayed struct {
	queue[stretch]
	own int // chunks of this rank's own shards
}

// add puts a stretch behind all others.
func (r *relayed) add(s stretch) {
	if s.own {
		r.own += s.to - s.from
	}
	if n := len(r.items); n > r.head && s.follows(&r.items[n-1]) {
		r.items[n-1].to = s.to
		return
	}
	r.push(s)
}

// take removes the first n chunks of the first stretch.
func (r *relayed) take(n int) {
	s := &r.items[r.head]
	s.from += n
	if s.own {
		r.own -= n
	}
	if s.from == s.to {
		r.pop()
	}
}
