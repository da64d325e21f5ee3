package bootstrap

import (
	"encoding/json"
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
)

// Refusal is what rank 0 tells a rank that it cannot serve.
type Refusal struct {
	Text    string                   `json:"text"`
	Rank    *int                     `json:"rank,omitempty"`    // that it is about
	Between *collective.Disagreement `json:"between,omitempty"` // who has what, if that is why
}

var (
	// otherJob is the refusal of a rank with another Key.
	otherJob = &Refusal{
		Text:    "rendezvous: rank 0 of another job listens there by now",
		Between: &collective.Disagreement{Ranks: [2]int{0, -1}, What: [2]string{"another job", ""}},
	}
	// Those of ranks that have not the secret of rank 0; who has none, or is told by one that has none, hears it in the
	// clear.
	wrongSecret = &Refusal{Text: "rendezvous: rank 0 has another MCAST_SECRET than this rank; want the same on all"}
	noSecret    = &Refusal{
		Text: "rendezvous: rank 0 has MCAST_SECRET (or MCAST_SECRET_FILE) and this rank has none; want the same on all",
	}
	onlySecret = &Refusal{
		Text: "rendezvous: this rank has MCAST_SECRET (or MCAST_SECRET_FILE) and rank 0 has none; want the same on all",
	}
)

func (r *Refusal) Error() string { return r.Text }

// Is has one that has come be the one that was sent.
func (r *Refusal) Is(target error) bool {
	sent, ok := target.(*Refusal)
	return ok && sent.Text == r.Text
}

// refusalFor is what the other ranks are told of an error for which there is no group.
func refusalFor(err error) *Refusal {
	r := &Refusal{Text: err.Error()}
	if rank, ok := RankOf(err); ok {
		r.Rank = &rank
	}
	return r
}

// answer is how a refusal travels.
func (r *Refusal) answer() []byte {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // it holds numbers and texts
	}
	return putAnswer(1, [][]byte{b})
}

// readRefusal is the refusal that has come.
func readRefusal(part []byte) error {
	var r Refusal
	if err := json.Unmarshal(part, &r); err != nil || r.Text == "" {
		return &Refusal{Text: fmt.Sprintf("rendezvous: rank 0 is of another release, and says %q", part)}
	}
	return &r
}
