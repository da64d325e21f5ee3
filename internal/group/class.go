package group

import (
	"time"

	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/transport/sendlink"
)

// inProcess is where groups of this process meet if their data leave the host by no link.
var inProcess = sendlink.New(new(sendlink.Words), sinceStart())

func sinceStart() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}

// class returns which class this group has, and where it meets the others.
func (g *Group) class() engine.Priority {
	c := engine.Priority{Link: g.link.Fabric(), Background: g.plan.Settings.Class == "background"}
	if c.Link == nil {
		c.Link = inProcess
	}
	return c
}
