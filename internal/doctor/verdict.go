package doctor

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// judge says what the rules do to a packet that begins a conversation, and which chain does it. It
// knows what rules commonly ask; where the answer hangs on something else, the verdict is Unclear.
func (r *ruleset) judge(p *packet) (verdict, by string) {
	verdict = Passes
	for _, c := range r.chains {
		if !p.passesBy(c) {
			continue
		}
		w := walk{rules: r, packet: p, table: c.Table, final: Passes}
		if c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop {
			w.final = Dropped
		}
		switch got := w.through(c.Name); {
		case got == Dropped:
			return Dropped, describe(c)
		case got == Unclear && verdict == Passes:
			verdict, by = Unclear, describe(c)
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
			return Unclear
		}
	}
	return w.final
}

// chain goes through the rules of a chain until one decides.
func (w *walk) chain(name string) {
	const deepest = 16 // as the kernel has it
	if w.depth++; w.depth > deepest {
		w.doubtful = append(w.doubtful, Unclear)
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
			w.final, w.decided = Passes, true
		case expr.VerdictDrop:
			w.final, w.decided = Dropped, true
		case expr.VerdictQueue, expr.VerdictStolen:
			w.final, w.decided = Unclear, true
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
		w.doubtful = append(w.doubtful, Passes)
	case expr.VerdictDrop:
		w.doubtful = append(w.doubtful, Dropped)
	case expr.VerdictContinue, expr.VerdictBreak:
	default: // a jump or goto: its chain may accept or drop
		w.doubtful = append(w.doubtful, Unclear)
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

// value is what a register holds. One in the byte order of the host is turned around before it is
// compared by size, for which rules have an expression that the library that reads them leaves out.
type value struct {
	bytes  []byte // nil: not known
	native bool
}

func (v value) ordered() []byte {
	if !v.native || binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		return v.bytes
	}
	turned := slices.Clone(v.bytes)
	slices.Reverse(turned)
	return turned
}

type registers map[uint32]value

// matches evaluates an expression: whether the packet still matches, and whether that is known.
func (p *packet) matches(e expr.Any, at registers) (applies, known bool) {
	switch e := e.(type) {
	case *expr.Meta:
		at[e.Register] = p.meta(e)
	case *expr.Payload:
		at[e.DestRegister] = value{bytes: p.payload(e)}
	case *expr.Ct:
		delete(at, e.Register)
		if e.Key == expr.CtKeySTATE && !e.SourceRegister {
			const isNew = 8 // NF_CT_STATE_BIT(IP_CT_NEW)
			at[e.Register] = number(isNew)
		}
	case *expr.Fib:
		at[e.Register] = p.fib(e)
	case *expr.Immediate:
		at[e.Register] = value{bytes: e.Data}
	case *expr.Bitwise:
		v := at[e.SourceRegister]
		at[e.DestRegister] = value{masked(v.bytes, e), v.native}
	case *expr.Cmp:
		v := at[e.Register].bytes
		if e.Op != expr.CmpOpEq && e.Op != expr.CmpOpNeq {
			v = at[e.Register].ordered()
		}
		if len(v) < len(e.Data) {
			return false, false
		}
		return compares(e.Op, bytes.Compare(v[:len(e.Data)], e.Data)), true
	case *expr.Range:
		v := at[e.Register].ordered()
		if len(v) != len(e.FromData) {
			return false, false
		}
		within := bytes.Compare(v, e.FromData) >= 0 && bytes.Compare(v, e.ToData) <= 0
		return within == (e.Op == expr.CmpOpEq), true
	default:
		return false, false
	}
	return true, true
}

// number is a value in the byte order of the host.
func number(n int) value {
	return value{bytes: binary.NativeEndian.AppendUint32(nil, uint32(n)), native: true}
}

func compares(op expr.CmpOp, order int) bool {
	switch op {
	case expr.CmpOpEq:
		return order == 0
	case expr.CmpOpNeq:
		return order != 0
	case expr.CmpOpLt:
		return order < 0
	case expr.CmpOpLte:
		return order <= 0
	case expr.CmpOpGt:
		return order > 0
	}
	return order >= 0
}

// meta returns what a rule asks of a packet besides its bytes.
func (p *packet) meta(e *expr.Meta) value {
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, p.link)
	switch {
	case e.SourceRegister:
		return value{}
	case e.Key == expr.MetaKeyL4PROTO:
		return value{bytes: p.network[9:10]}
	case e.Key == expr.MetaKeyPROTOCOL:
		return value{bytes: []byte{unix.ETH_P_IP >> 8, unix.ETH_P_IP & 255}}
	case e.Key == expr.MetaKeyNFPROTO:
		return value{bytes: []byte{unix.NFPROTO_IPV4}}
	case e.Key == expr.MetaKeyIIFNAME && p.in, e.Key == expr.MetaKeyOIFNAME && !p.in:
		return value{bytes: name}
	case e.Key == expr.MetaKeyIIF && p.in, e.Key == expr.MetaKeyOIF && !p.in:
		return number(p.index)
	case e.Key == expr.MetaKeyLEN:
		return number(int(binary.BigEndian.Uint16(p.network[2:])))
	case e.Key == expr.MetaKeyPKTTYPE && p.in && p.multicast():
		return value{bytes: []byte{unix.PACKET_MULTICAST}}
	case e.Key == expr.MetaKeyPKTTYPE && p.in:
		return value{bytes: []byte{unix.PACKET_HOST}}
	}
	return value{}
}

// multicast reports whether the destination is a group.
func (p *packet) multicast() bool { return p.network[16]>>4 == 14 }

func (p *packet) payload(e *expr.Payload) []byte {
	from := p.network
	switch {
	case e.OperationType != expr.PayloadLoad:
		return nil
	case e.Base == expr.PayloadBaseTransportHeader:
		from = p.transport
	case e.Base != expr.PayloadBaseNetworkHeader:
		return nil
	}
	if int(e.Offset+e.Len) > len(from) {
		return nil
	}
	return from[e.Offset : e.Offset+e.Len]
}

// fib answers what kind of address the destination is.
func (p *packet) fib(e *expr.Fib) value {
	switch {
	case !e.ResultADDRTYPE || !e.FlagDADDR || e.FlagSADDR || !p.in:
		return value{}
	case p.multicast():
		return number(unix.RTN_MULTICAST)
	}
	return number(unix.RTN_LOCAL)
}

func masked(from []byte, e *expr.Bitwise) []byte {
	if len(from) < len(e.Mask) || len(e.Mask) != len(e.Xor) {
		return nil
	}
	to := make([]byte, len(e.Mask))
	for i := range to {
		to[i] = from[i]&e.Mask[i] ^ e.Xor[i]
	}
	return to
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
