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
