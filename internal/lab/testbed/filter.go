package testbed

import (
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Frames are dropped where they arrive: after the sender's rate, so that what is
// lost has used the link, and in the size that they have on the wire.

// igmp matches frames that carry IGMP, or IPv4 other than IGMP.
func igmp(op expr.CmpOp) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyPROTOCOL, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.ETH_P_IP >> 8, unix.ETH_P_IP & 0xff}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 9, Len: 1},
		&expr.Cmp{Op: op, Register: 1, Data: []byte{unix.IPPROTO_IGMP}},
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
	return &nftables.Rule{Table: chain.Table, Chain: chain, Exprs: append(match, &expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop})}
}

// dropTable removes a table that drops, if it is there.
func dropTable(c *nftables.Conn, family nftables.TableFamily, name string) {
	c.DelTable(c.AddTable(&nftables.Table{Name: name, Family: family}))
}

// keepIGMP keeps queries from other switches: every leaf asks its own hosts, and
// a second querier would make it stop.
func keepIGMP(switches netns.NsHandle, u uplink) error {
	c, err := nftables.New(nftables.WithNetNSFd(int(switches)))
	if err != nil {
		return err
	}
	ingress(c, "igmp-"+u.up(), u.up(), igmp(expr.CmpOpEq)...)
	ingress(c, "igmp-"+u.up(), u.down(), igmp(expr.CmpOpEq)...)
	if err := c.Flush(); err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	return nil
}
