package reducescatter

import "github.com/torch-mcast/torch-mcast/internal/protocol/direct"

// owners counts the Reduces in flight to each rank.
type owners struct {
	reduces []int // by rank
	n       int   // ranks to which one is in flight
}

func (w *owners) add(o *direct.Op) {
	if r, one := o.To.Root(); one {
		if w.reduces[r]++; w.reduces[r] == 1 {
			w.n++
		}
	}
}

func (w *owners) remove(o *direct.Op) {
	if r, one := o.To.Root(); one {
		if w.reduces[r]--; w.reduces[r] == 0 {
			w.n--
		}
	}
}

// all reports whether Reduces to all ranks are in flight: then they are one Reduce-Scatter in windows.
func (w *owners) all() bool { return w.n == len(w.reduces) }
