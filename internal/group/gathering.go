package group

import (
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/team"
)

// Ways in which Allgathers and Broadcasts travel, as Info says.
const (
	byMulticast = "multicast"
	byUnicast   = "unicast"
	byMemory    = "shared memory"
)

// gathering is how Allgathers and Broadcasts travel, and why.
type gathering struct{ by, reason string }

// gatheringOver concludes from what the paths carry, on all ranks alike, how Allgathers and Broadcasts
// travel: by multicast only if it passes between all ranks.
func gatheringOver(a *team.Plan, paths *probed) (gathering, error) {
	switch setting := a.Settings.Multicast; {
	case setting == "off":
		return gathering{byUnicast, "MCAST_MULTICAST=off"}, nil
	case len(paths.deaf) == 0:
		return gathering{byMulticast, "it reaches every rank"}, nil
	case setting == "require":
		return gathering{}, &Fault{Kind: Path, From: paths.deaf[0][0], Rank: paths.deaf[0][1], Text: "MCAST_MULTICAST=require, but " + paths.unheard() + "; " + paths.remedy()}
	default:
		return gathering{byUnicast, paths.unheard()}, nil
	}
}

// now returns how they travel now: what was concluded when the group was joined holds until the
// protocol finds otherwise.
func (g gathering) now(s *multicast.Stats) (by, reason string) {
	switch {
	case g.by == byMemory:
	case s.Relaying == 0 && g.by == byUnicast:
		return byMulticast, "it reaches every rank again"
	case s.Relaying > 0 && s.Unheard > 0 && g.by == byMulticast:
		return byUnicast, fmt.Sprintf("multicast of %d rank(s) does not arrive here any more", s.Unheard)
	case s.Relaying > 0 && g.by == byMulticast:
		return byUnicast, "multicast does not arrive at another rank any more"
	}
	return g.by, g.reason
}
