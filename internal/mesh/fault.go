package mesh

import (
	"encoding/json"
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
)

// FaultKind says why a communicator ended.
type FaultKind uint8

// The kinds of fault.
const (
	// Dead: a rank died, stopped, or was cut off.
	Dead FaultKind = iota + 1
	// Mismatch: ranks disagree about an operation or a setting.
	Mismatch
	// Closed: this rank closed the communicator itself.
	Closed
	// Local: something on a rank failed that has nothing to do with its peers.
	Local
	// Path: all ranks answer, but data do not pass between two of them.
	Path
	// Left: a rank closed the communicator while others still used it.
	Left
	// Aborted: a rank gave the communicator up, and said why.
	Aborted
	faultKinds
)

// Fault is the error with which a communicator ends on every rank.
type Fault struct {
	Kind FaultKind `json:"kind"`
	// Rank is the one at fault: dead, the first to notice a mismatch, or the one that data do not reach.
	Rank int `json:"-"`
	// From is the rank from which data do not come, of a Path.
	From int `json:"from,omitempty"`
	// Between is who called or has what, of a Mismatch; nil: only the text tells.
	Between *collective.Disagreement `json:"between,omitempty"`
	Text    string                   `json:"text"`
}

// payload is what the frame of a fault holds beside the rank.
func (f *Fault) payload() []byte {
	b, err := json.Marshal(f)
	if err != nil {
		panic(err) // it holds numbers and texts
	}
	return b
}

// readFault is the fault about a rank that a frame holds.
func readFault(rank int, payload []byte) (*Fault, error) {
	f := &Fault{Rank: rank}
	if err := json.Unmarshal(payload, f); err != nil {
		return nil, fmt.Errorf("frame of a fault: %w", err)
	}
	if f.Kind == 0 || f.Kind >= faultKinds {
		return nil, fmt.Errorf("frame of a fault of kind %d, want 1 to %d", f.Kind, faultKinds-1)
	}
	return f, nil
}

// Error tells what happened and names the rank.
func (f *Fault) Error() string {
	switch f.Kind {
	case Dead:
		return fmt.Sprintf("rank %d is lost: %s", f.Rank, f.Text)
	case Mismatch, Path:
		return f.Text
	case Closed:
		return "the group is closed"
	case Left:
		return fmt.Sprintf("rank %d has left (its script ended or destroyed the group) %s", f.Rank, f.Text)
	case Aborted:
		return fmt.Sprintf("rank %d aborted: %s", f.Rank, f.Text)
	}
	return fmt.Sprintf("rank %d failed: %s", f.Rank, f.Text)
}

// Disagree is the fault that a rank reports when ranks have called different things.
func Disagree(rank int, d *collective.Disagreement, about string) *Fault {
	return &Fault{Kind: Mismatch, Rank: rank, Between: d, Text: d.Words(about)}
}
