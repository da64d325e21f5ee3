package examine

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/doctor"
)

// judge says what the rules do to a packet that begins a conversation, and which chain does it. It
// knows what rules commonly ask; where the answer hangs on something else, the verdict is Unclear.
func (r *ruleset) judge(p *packet) (verdict, by string) {
	verdict = doctor.Passes
	for _, c := range r.chains {
		if !p.passesBy(c) {
			continue
		}
		w := walk{rules: r, packet: p, table: c.Table, final: doctor.Passes}
		if c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop {
			w.final = doctor.Dropped
		}
		switch got := w.through(c.Name); {
		case got == doctor.Dropped:
			return doctor.Dropped, describe(c)
		case got == doctor.Unclear && verdict == doctor.Passes:
			verdict, by = doctor.Unclear, describe(c)
		}
	}
	return verdict, by
}

func describe(c *nftables.Chain) string {
	families := map[nftables.TableFamily]string{nftables.TableFamilyIPv4: "ip",
		nftables.TableFamilyINet: "inet", nftables.TableFamilyNetdev: "netdev"}
	return fmt.Sprintf("%s %s %s", families[c.Table.Family], c.Table.Name, c.Name)
}

// passesBy reports whether a chain is one that the packet goes through first.
func (p *packet) passesBy(c *nftables.Chain) bool {
	if c.Hooknum == nil || c.Type == nftables.ChainTypeNAT {
		return false
	}
	hook := *c.Hooknum
	if c.Table.Family == nftables.TableFamilyNetdev {
		if c.Device != "" && c.Device != p.link {
			return false
		}
		return p.in == (hook == *nftables.ChainHookIngress)
	}
	if p.in {
		return hook == *nftables.ChainHookPrerouting || hook == *nftables.ChainHookInput
	}
	return hook == *nftables.ChainHookOutput || hook == *nftables.ChainHookPostrouting
}

// walk is a packet's way through one base chain and the chains that it jumps to.
type walk struct {
	rules    *ruleset
	packet   *packet
	table    *nftables.Table
	final    string // the policy, and then the verdict
	decided  bool
	doubtful []string // verdicts of rules that may have come first
	depth    int
}

// through returns the verdict of a base chain.
func (w *walk) through(name string) string {
	w.chain(name)
	for _, d := range w.doubtful {
		if d != w.final {
			return doctor.Unclear
		}
	}
	return w.final
}

// chain goes through the rules of a chain until one decides.
func (w *walk) chain(name string) {
	const deepest = 16 // as the kernel has it
	if w.depth++; w.depth > deepest {
		w.doubtful = append(w.doubtful, doctor.Unclear)
		return
	}
	defer func() { w.depth-- }()
	for _, rule := range w.rules.rules[chainName{w.table.Family, w.table.Name, name}] {
		v, sure := w.rule(rule)
		if v == nil {
			continue
		}
		if !sure {
			w.doubt(v)
			continue
		}
		switch v.Kind {
		case expr.VerdictAccept:
			w.final, w.decided = doctor.Passes, true
		case expr.VerdictDrop:
			w.final, w.decided = doctor.Dropped, true
		case expr.VerdictQueue, expr.VerdictStolen:
			w.final, w.decided = doctor.Unclear, true
		case expr.VerdictJump:
			w.chain(v.Chain)
		case expr.VerdictGoto:
			w.chain(v.Chain)
			return
		case expr.VerdictReturn:
			return
		}
		if w.decided {
			return
		}
	}
}

// doubt takes down what a rule would do that may apply.
func (w *walk) doubt(v *expr.Verdict) {
	switch v.Kind {
	case expr.VerdictAccept:
		w.doubtful = append(w.doubtful, doctor.Passes)
	case expr.VerdictDrop:
		w.doubtful = append(w.doubtful, doctor.Dropped)
	case expr.VerdictContinue, expr.VerdictBreak:
	default: // a jump or goto: its chain may accept or drop
		w.doubtful = append(w.doubtful, doctor.Unclear)
	}
}

// rule returns what a rule says of the packet, nil if nothing, and whether it surely applies.
func (w *walk) rule(rule *nftables.Rule) (v *expr.Verdict, sure bool) {
	at := make(registers)
	sure = true
	for _, e := range rule.Exprs {
		switch e := e.(type) {
		case *expr.Verdict:
			return e, sure
		case *expr.Reject:
			return &expr.Verdict{Kind: expr.VerdictDrop}, sure
		case *expr.Target: // of iptables
			if e.Name == "REJECT" {
				return &expr.Verdict{Kind: expr.VerdictDrop}, sure
			}
			return nil, sure
		case *expr.Queue:
			return &expr.Verdict{Kind: expr.VerdictQueue}, sure
		case *expr.Counter, *expr.Log, *expr.Notrack:
		case *expr.Lookup:
			found, verdict, known := w.lookUp(e, at)
			switch {
			case known && !found:
				return nil, true
			case verdict != nil:
				return verdict, sure
			case !known:
				sure = false
			}
		default:
			switch applies, known := w.packet.matches(e, at); {
			case !known:
				sure = false
			case !applies:
				return nil, true
			}
		}
	}
	return nil, sure
}

// lookUp returns whether a set has the value of a register, and its verdict in a map of verdicts.
func (w *walk) lookUp(e *expr.Lookup, at registers) (found bool, v *expr.Verdict, known bool) {
	s := w.rules.sets[setName{w.table.Family, w.table.Name, e.SetName}]
	verdicts := e.IsDestRegSet && e.DestRegister == unix.NFT_REG_VERDICT
	unclear := func() (bool, *expr.Verdict, bool) {
		if verdicts {
			return true, &expr.Verdict{Kind: expr.VerdictQueue}, false // it may be anything
		}
		return false, nil, false
	}
	key := at[e.SourceRegister].bytes
	if s != nil && s.Interval {
		key = at[e.SourceRegister].ordered()
	}
	if s == nil || len(key) == 0 || s.Concatenation || e.IsDestRegSet && !verdicts {
		return unclear()
	}
	var last *nftables.SetElement
	for i := range s.elements {
		element := &s.elements[i]
		if len(element.Key) > len(key) {
			return unclear()
		}
		order := bytes.Compare(element.Key, key[:len(element.Key)])
		if order == 0 && !s.Interval || order <= 0 && s.Interval {
			last = element
		}
	}
	found = last != nil && !last.IntervalEnd
	switch {
	case !verdicts:
		return found != e.Invert, nil, true
	case !found:
		return false, nil, true
	}
	if v = verdictIn(last.Val); v == nil {
		return unclear()
	}
	return true, v, true
}

// verdictIn reads the verdict of an element, which the library leaves as it came.
func verdictIn(data []byte) *expr.Verdict {
	d, err := netlink.NewAttributeDecoder(data)
	if err != nil {
		return nil
	}
	d.ByteOrder = binary.BigEndian
	var v *expr.Verdict
	for chain := ""; d.Next(); {
		switch d.Type() {
		case unix.NFTA_VERDICT_CODE:
			v = &expr.Verdict{Kind: expr.VerdictKind(d.Int32()), Chain: chain}
		case unix.NFTA_VERDICT_CHAIN:
			if chain = d.String(); v != nil {
				v.Chain = chain
			}
		}
	}
	if d.Err() != nil {
		return nil
	}
	return v
}
