package main

import "github.com/torch-mcast/torch-mcast/internal/reduce"

// The loops of the level in use.

func touches() []touch {
	switch reduce.Active() {
	case reduce.AVX512:
		return []touch{{"like a sum", touchAVX512}, {"like a sum, written around the caches", touchAroundAVX512}}
	case reduce.AVX2:
		return []touch{{"like a sum", touchAVX2}, {"like a sum, written around the caches", touchAroundAVX2}}
	}
	return nil
}

func reads() []sweep {
	switch reduce.Active() {
	case reduce.AVX512:
		return []sweep{{"read", readAVX512}, {"read with prefetch", readAheadAVX512}}
	case reduce.AVX2:
		return []sweep{{"read", readAVX2}, {"read with prefetch", readAheadAVX2}}
	}
	return []sweep{words}
}

func writes() []sweep {
	switch reduce.Active() {
	case reduce.AVX512:
		return []sweep{clearing, {"write around the caches", writeAroundAVX512}}
	case reduce.AVX2:
		return []sweep{clearing, {"write around the caches", writeAroundAVX2}}
	}
	return []sweep{clearing}
}
