package overlap

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestWatch(t *testing.T) {
	var w Watch
	w.Start(10)
	w.Enter(Peers, 13)
	w.Enter(Transfer, 20)
	w.Enter(Turn, 19) // before Transfer began: counts as that moment
	w.Enter(Transfer, 25)
	w.Enter(Finish, 40)
	a := w.Stop(41)
	assert.Equal(t, Account{Queued: 3, Peers: 7, Turn: 5, Transfer: 15, Finish: 1}, a)
	assert.Equal(t, time.Duration(31), a.Total())
	var l Ledger
	l.Add(a)
	l.Add(a)
	assert.Equal(t, a.Plus(a), l.Sum())
}

// TestLast: phases go in order, so the last of an account is the last of its phases.
func TestLast(t *testing.T) {
	a := Account{Queued: 10, Peers: 20, Turn: 10, Transfer: 30, Finish: 5}
	for d, want := range map[time.Duration]Account{
		0:   {},
		3:   {Finish: 3},
		5:   {Finish: 5},
		25:  {Turn: 5, Transfer: 15, Finish: 5},
		55:  {Peers: 10, Turn: 10, Transfer: 30, Finish: 5},
		75:  a,
		100: a.Plus(Account{Queued: 25}),
	} {
		assert.Equal(t, want, a.Last(d), "the last %d", d)
		assert.Equal(t, d, a.Last(d).Total())
	}
}
