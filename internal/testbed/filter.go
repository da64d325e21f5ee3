package testbed

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Frames are dropped where they arrive: after the sender's rate, so that what is
// lost has used the link, and in the size that they have on the wire.

const (
	lossTable = "loss-"
	// lossUnit is what a share is counted in.
	lossUnit = 1_000_000
)

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
	c.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: append(match, &expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop})})
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

// setLoss drops a share p of what arrives at both ends of a host's link.
func setLoss(switches, host netns.NsHandle, port string, p float64) error {
	for _, end := range []struct {
		ns     netns.NsHandle
		device string
	}{{switches, port}, {host, "eth0"}} {
		c, err := nftables.New(nftables.WithNetNSFd(int(end.ns)))
		if err != nil {
			return err
		}
		table := c.AddTable(&nftables.Table{Name: lossTable + end.device, Family: nftables.TableFamilyNetdev})
		c.DelTable(table)
		if p > 0 {
			ingress(c, table.Name, end.device, append(igmp(expr.CmpOpNeq), drawn(p)...)...)
		}
		if err := c.Flush(); err != nil {
			return fmt.Errorf("nftables: loss at %s of %s: %w", end.device, port, err)
		}
	}
	return nil
}

// drawn matches a share p of frames at random.
func drawn(p float64) []expr.Any {
	below := binary.BigEndian.AppendUint32(nil, uint32(math.Round(p*lossUnit))) //nolint:gosec // at most a million
	return []expr.Any{
		&expr.Numgen{Register: 1, Modulus: lossUnit, Type: unix.NFT_NG_RANDOM},
		&expr.Byteorder{SourceRegister: 1, DestRegister: 1, Op: expr.ByteorderHton, Len: 4, Size: 4},
		&expr.Cmp{Op: expr.CmpOpLt, Register: 1, Data: below},
	}
}

// loss is what a device loses of what arrives.
type loss struct {
	share   float64
	dropped uint64 // frames so far
}

// losses returns the losses of a namespace by device.
func losses(ns netns.NsHandle) (map[string]loss, error) {
	c, err := nftables.New(nftables.WithNetNSFd(int(ns)))
	if err != nil {
		return nil, err
	}
	tables, err := c.ListTablesOfFamily(nftables.TableFamilyNetdev)
	if err != nil {
		return nil, fmt.Errorf("nftables: %w", err)
	}
	found := map[string]loss{}
	for _, t := range tables {
		device, is := strings.CutPrefix(t.Name, lossTable)
		if !is {
			continue
		}
		rules, err := c.GetRules(t, &nftables.Chain{Name: device, Table: t})
		if err != nil {
			return nil, fmt.Errorf("nftables: loss at %s: %w", device, err)
		}
		for _, r := range rules {
			found[device] = readLoss(r.Exprs)
		}
	}
	return found, nil
}

func readLoss(rule []expr.Any) (l loss) {
	for _, e := range rule {
		switch e := e.(type) {
		case *expr.Cmp:
			if e.Op == expr.CmpOpLt && len(e.Data) == 4 {
				l.share = float64(binary.BigEndian.Uint32(e.Data)) / lossUnit
			}
		case *expr.Counter:
			l.dropped = e.Packets
		}
	}
	return l
}
