package group

import (
	"errors"
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/direct"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// name returns the rank of a place. What another rank made up is no place, and stays.
func (m *members) name(place int) int {
	if place >= 0 && place < m.size() {
		return m.ranks[place]
	}
	return place
}

// inRanks returns an error of an engine or a fabric in terms of the group: they know members by their place.
func (m *members) inRanks(err error) error {
	var mismatch *collective.MismatchError
	var broken *direct.BrokenError
	var peer *fabric.PeerError
	switch {
	case errors.As(err, &mismatch):
		about := mismatch.About
		if about != "" && !mismatch.Called && !m.all {
			about = "a step (" + about + " of its lane)"
		}
		d := mismatch.In(m.name)
		return disagreement(m.rank(m.own), &d, about)
	case errors.As(err, &broken):
		return &direct.BrokenError{Rank: m.rank(broken.Rank), Err: m.inRanks(broken.Err)}
	case errors.As(err, &peer):
		return fmt.Errorf("connection to rank %d: %w", m.rank(peer.Peer), peer.Err)
	}
	return err
}

// disagreement is the fault that a rank reports when ranks have called different things.
func disagreement(rank int, d *collective.Disagreement, about string) *Fault {
	return &Fault{Kind: Mismatch, Rank: rank, Between: d, Text: d.Words(about)}
}
