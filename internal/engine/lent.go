package engine

import "slices"

// lent is an operation that is done but for its input: a device may still read it, so that it is not the caller's yet.
// That is rare: mostly the chunks multicast from there have left long before the other ranks say that they have all.
type lent struct {
	work  *Work
	until uint64 // see fabric.Run
}

// settle ends the operations that have got their input back from the fabric.
func (g *Gather) settle() (busy bool) {
	g.lent = slices.DeleteFunc(g.lent, func(l lent) bool {
		if !g.fab.Returned(l.until) {
			return false
		}
		busy = true
		g.done(l.work, nil)
		return true
	})
	return busy
}
