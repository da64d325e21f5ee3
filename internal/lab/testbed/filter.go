package testbed

import (
	"encoding/binary"
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netns"
)

// Frames are dropped where they arrive: after the sender's rate, so that a lost frame has used the
// link, and in the size that they have on the wire.

// carries matches packets of a protocol, or those of any other.
func (f *family) carries(op expr.CmpOp, protocol byte) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyPROTOCOL, Register: 1}, equal(binary.BigEndian.AppendUint16(nil, f.ethertype)),
		header(f.protocol, 1), &expr.Cmp{Op: op, Register: 1, Data: []byte{protocol}},
	}
}

// ingress adds a table in which frames that arrive at a device and match are dropped.
func ingress(c *nftables.Conn, table, device string, match ...expr.Any) {
	t := c.AddTable(&nftables.Table{Name: table, Family: nftables.TableFamilyNetdev})
	chain := c.AddChain(&nftables.Chain{Name: device, Table: t, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookIngress, Priority: nftables.ChainPriorityFilter, Device: device})
	c.AddRule(dropRule(chain, match...))
}

// dropRule is a rule by which what matches is counted and dropped.
func dropRule(chain *nftables.Chain, match ...expr.Any) *nftables.Rule {
	return &nftables.Rule{
		Table: chain.Table, Chain: chain, Exprs: append(match, &expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop}),
	}
}

// dropTable removes a table that drops, if it is there.
func dropTable(c *nftables.Conn, family nftables.TableFamily, name string) {
	c.DelTable(c.AddTable(&nftables.Table{Name: name, Family: family}))
}

// keepMembership keeps queries from other switches: every leaf asks its own hosts, and
// a second querier would make it stop.
func (f *family) keepMembership(switches netns.NsHandle, u uplink) error {
	c, err := nftables.New(nftables.WithNetNSFd(int(switches)))
	if err != nil {
		return err
	}
	for _, port := range []string{u.up(), u.down()} {
		ingress(c, "igmp-"+u.up(), port, f.carries(expr.CmpOpEq, f.membership)...)
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	return nil
}
