package group

import "github.com/torch-mcast/torch-mcast/pkg/overlap"

// Waited returns how long the operations of a class that are done, and well,
// have waited for what, in all. Work.Account tells it of one.
func (g *Group) Waited(c overlap.Class) overlap.Account { return g.waited[c].Sum() }
