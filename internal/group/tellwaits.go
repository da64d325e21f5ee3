package group

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/team"
)

// awaited says which ranks are not there yet, and why.
func (g *Group) awaited(a *team.Plan) string {
	l := g.peers
	var parts []string
	failing := l.Unreached()
	for _, r := range slices.Sorted(maps.Keys(failing)) {
		at := ""
		if len(a.Ways) == 1 {
			at = fmt.Sprintf(" at %v", a.Addrs[r])
		}
		parts = append(parts, fmt.Sprintf("rank %d on %v cannot be reached%s: %v", r, a.Hosts[r], at, failing[r]))
	}
	neighbours := mesh.Neighbours(a.Rank, a.Size)
	absent := slices.DeleteFunc(l.Absent(a, wire.PurposeMesh), func(r int) bool { return !slices.Contains(neighbours, r) })
	if len(absent) > 0 {
		parts = append(parts, fmt.Sprintf("%s: not connected to this rank yet", team.RankList(absent)))
	}
	if len(parts) == 0 {
		if r, ok := g.mesh.Silent(); ok {
			return fmt.Sprintf("rank %d on %v has not answered", r, a.Hosts[r])
		}
		return "some other ranks have not come; the ranks that wait for them name them"
	}
	return strings.Join(parts, "; ")
}
