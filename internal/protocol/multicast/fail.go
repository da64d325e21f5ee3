package multicast

import (
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
)

// Fail ends every operation in flight, and all later ones, with err.
func (c *Comm) Fail(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	for p := c.ops.front(); p != nil; p = c.ops.after(p) {
		c.complete(p, err)
	}
	c.out.close()
	c.verify()
}

// disagree ends the communicator: this rank and another posted different operations, or steps of different calls.
func (c *Comm) disagree(p *op, mine Op, from int, theirs Op) {
	if mine.Call.Equal(&theirs.Call) {
		c.mismatch(p.seq, from, mine.text(), theirs.text(), false)
		return
	}
	a, b := opOfCall(&mine.Call).String(), opOfCall(&theirs.Call).String() // of a root that is a rank of the group
	if n, m := mine.Call.Number, theirs.Call.Number; n != m {
		a, b = fmt.Sprintf("%s as operation %d", a, n), fmt.Sprintf("%s as operation %d", b, m)
	}
	c.mismatch(mine.Call.Number, from, collective.Text{Words: a}, collective.Text{Words: b}, true)
}

// disagreeHow ends the communicator: this rank and another posted the same operation, to be done differently.
func (c *Comm) disagreeHow(p *op, from int, mine, theirs string) {
	o := p.called()
	c.mismatch(p.seq, from, collective.Textf("%v %s", o.text(), mine), collective.Textf("%v %s", o.text(), theirs), false)
}

func (c *Comm) mismatch(number uint32, from int, mine, theirs collective.Text, called bool) {
	c.Fail(&collective.MismatchError{
		About: fmt.Sprintf("operation %d", number), Who: [2]int{c.cfg.Rank, from}, What: [2]collective.Text{mine, theirs},
		Called: called,
	})
}
