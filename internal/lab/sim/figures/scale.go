package figures

import "time"

// doublings returns from, 2*from, ... up to to.
func doublings(from, to float64) []float64 {
	var all []float64
	for v := from; v <= to; v *= 2 {
		all = append(all, v)
	}
	return all
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
