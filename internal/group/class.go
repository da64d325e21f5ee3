package group

import "github.com/torch-mcast/torch-mcast/pkg/overlap"

// foreground is what the groups of this process in the foreground are to those in the background.
var foreground overlap.Foreground

// begun notes that an operation was posted, or that what it waited for is done.
func (g *Group) begun(c overlap.Class) {
	g.meter.Begin(c)
	if !g.inBackground() {
		foreground.Begin(g.lanes[c])
	}
}

// ended notes that an operation is done.
func (g *Group) ended(c overlap.Class) {
	g.meter.End(c)
	if !g.inBackground() {
		foreground.End(g.lanes[c])
	}
}

func (g *Group) inBackground() bool { return g.agreed.settings.Class == "background" }

// yield reports whether this group must not send now, because it is in the
// background and an operation of the foreground is in flight.
func (g *Group) yield() bool {
	if !g.inBackground() {
		return false
	}
	g.enlist.Do(func() {
		g.background = foreground.Background(func() {
			g.gather.Wake()
			g.reduce.Wake()
		})
	})
	return g.background.Yield()
}
