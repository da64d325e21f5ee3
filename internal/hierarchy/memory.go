package hierarchy

// nonNil returns an empty slice for nil: a nil Send means that there is no own shard.
func nonNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
