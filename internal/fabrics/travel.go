package fabrics

import (
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/team"
)

// Ways in which Allgathers and Broadcasts travel, as Info says.
const (
	Multicast = "multicast"
	Unicast   = "unicast"
	byMemory  = "shared memory"
)

// Travel is how Allgathers and Broadcasts travel, and why.
type Travel struct{ By, Reason string }

// travelOver concludes from what the paths carry, on all ranks alike, how Allgathers and Broadcasts
// travel: by multicast only if it passes between all ranks.
func travelOver(a *team.Plan, paths *probed) (Travel, error) {
	switch setting := a.Settings.Multicast; {
	case setting == "off":
		return Travel{Unicast, "MCAST_MULTICAST=off"}, nil
	case len(paths.unheardPairs) == 0:
		return Travel{Multicast, "it reaches every rank"}, nil
	case setting == "require":
		return Travel{}, &mesh.Fault{
			Kind: mesh.Path, From: paths.unheardPairs[0][0], Rank: paths.unheardPairs[0][1],
			Text: "MCAST_MULTICAST=require, but " + paths.unheard() + "; " + paths.remedy(),
		}
	default:
		return Travel{Unicast, paths.unheard()}, nil
	}
}

// Now returns how they travel now: what was concluded when the group was joined holds until the
// protocol finds otherwise.
func (t Travel) Now(s *multicast.Stats) (by, reason string) {
	switch {
	case t.By == byMemory:
	case s.Relaying == 0 && t.By == Unicast:
		return Multicast, "it reaches every rank again"
	case s.Relaying > 0 && s.Unheard > 0 && t.By == Multicast:
		return Unicast, fmt.Sprintf("multicast of %d rank(s) does not arrive here any more", s.Unheard)
	case s.Relaying > 0 && t.By == Multicast:
		return Unicast, "multicast does not arrive at another rank any more"
	}
	return t.By, t.Reason
}
