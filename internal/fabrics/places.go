package fabrics

import (
	"errors"
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/direct"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// InRanks returns an error of an engine or a fabric in terms of the group: they know members by their place.
func InRanks(m *team.Members, err error) error {
	var mismatch *collective.MismatchError
	var broken *direct.BrokenError
	var peer *fabric.PeerError
	switch {
	case errors.As(err, &mismatch):
		about := mismatch.About
		if about != "" && !mismatch.Called && !m.All {
			about = "a step (" + about + " of its lane)"
		}
		d := mismatch.In(m.Name)
		return mesh.Disagree(m.Rank(m.Own), &d, about)
	case errors.As(err, &broken):
		return &direct.BrokenError{Rank: m.Rank(broken.Rank), Err: InRanks(m, broken.Err)}
	case errors.As(err, &peer):
		return fmt.Errorf("connection to rank %d: %w", m.Rank(peer.Peer), peer.Err)
	}
	return err
}
