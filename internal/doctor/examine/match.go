package examine

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

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
