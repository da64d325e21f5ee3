package udp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// attachFilter makes a socket refuse, before they take room in its queue, all datagrams but those
// of this job and version from another rank of the group, sent from that rank's address.
func attachFilter(fd int, o *Options) error {
	for most := mostSpans; ; most /= 2 {
		err := attach(fd, filter(o, spansOf(o.Sources, most)))
		// Linux bounds what a socket's options take (net.core.optmem_max, 20 KiB before 6.7).
		if !errors.Is(err, unix.ENOMEM) || most == 1 {
			return err
		}
	}
}

func attach(fd int, instructions []bpf.Instruction) error {
	program, err := bpf.Assemble(instructions)
	if err != nil {
		return fmt.Errorf("assemble socket filter: %w", err)
	}
	raw := make([]unix.SockFilter, len(program))
	for i, in := range program {
		raw[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	prog := unix.SockFprog{Len: uint16(len(raw)), Filter: &raw[0]} // At most 4096 instructions.
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &prog); err != nil {
		return fmt.Errorf("attach socket filter: %w", err)
	}
	return nil
}

// What a filter returns: how many bytes to keep.
const pass, refuse = 1 << 18, 0

// networkHeader is where a filter finds the IP header (SKF_NET_OFF in linux/filter.h); it sees
// datagrams from their UDP header on.
const (
	networkHeader = 0xfff00000
	sourceAddress = networkHeader + 12
)

// filter is the program. A load beyond the end of a datagram refuses it.
func filter(o *Options, sources []span) []bpf.Instruction {
	load := func(offset uint32, size int) bpf.Instruction {
		return bpf.LoadAbsolute{Off: udpHeader + offset, Size: size}
	}
	refuseIf := func(cond bpf.JumpTest, val uint32) bpf.Instruction {
		return bpf.JumpIf{Cond: cond, Val: val}
	}
	program := []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtLen},
		refuseIf(bpf.JumpLessThan, udpHeader+wire.DataSize),
		load(wire.DataOffMagic, 2),
		refuseIf(bpf.JumpNotEqual, wire.DataMagic),
		load(wire.DataOffMagic+2, 1),
		bpf.ALUOpConstant{Op: bpf.ALUOpShiftRight, Val: 4},
		refuseIf(bpf.JumpNotEqual, wire.Version),
		load(wire.DataOffJob, 4),
		refuseIf(bpf.JumpNotEqual, uint32(o.Job>>32)),
		load(wire.DataOffJob+4, 4),
		refuseIf(bpf.JumpNotEqual, uint32(o.Job)), // The low half.
		load(wire.DataOffRoot, 2),
		refuseIf(bpf.JumpEqual, uint32(o.Rank)),          // 0 to 65535.
		refuseIf(bpf.JumpGreaterOrEqual, uint32(o.Size)), // 1 to 65536.
		bpf.Jump{Skip: 1},
		bpf.RetConstant{Val: refuse},
	}
	last := len(program) - 1
	for i, in := range program {
		if test, ok := in.(bpf.JumpIf); ok {
			test.SkipTrue = uint8(last - i - 1)
			program[i] = test
		}
	}
	if len(sources) == 0 {
		return append(program, bpf.RetConstant{Val: pass})
	}
	return append(program, search(sources)...)
}

// span is a stretch of ranks, up to the next span's first, and the least and the greatest of
// their IPv4 addresses.
type span struct {
	first       uint32
	least, most uint32
}

// mostSpans bounds the length of a filter: Linux takes 4096 instructions, and search makes up to seven a span.
const mostSpans = 512

// spansOf returns the spans of ranks with these addresses, most of them at most. Ranks of one host follow
// one another as a rule, and so do the addresses of neighbours; so with up to as many hosts
// each span is of one address, and with more hosts of a few close ones.
func spansOf(sources []netip.Addr, most int) (spans []span) {
	for rank, source := range sources {
		b := source.As4()
		addr := binary.BigEndian.Uint32(b[:])
		if n := len(spans); n == 0 || spans[n-1].least != addr {
			spans = append(spans, span{uint32(rank), addr, addr}) // Below maxRanks.
		}
	}
	if len(spans) <= most {
		return spans
	}
	together := (len(spans) + most - 1) / most
	merged := spans[:0]
	for group := range slices.Chunk(slices.Clone(spans), together) {
		s := group[0]
		for _, other := range group[1:] {
			s.least, s.most = min(s.least, other.least), max(s.most, other.most)
		}
		merged = append(merged, s)
	}
	return merged
}

// search finds the span of the rank in the accumulator, by halves, and passes the datagram if it
// comes from there.
func search(spans []span) []bpf.Instruction {
	if len(spans) == 1 {
		return []bpf.Instruction{
			bpf.LoadAbsolute{Off: sourceAddress, Size: 4},
			bpf.JumpIf{Cond: bpf.JumpLessThan, Val: spans[0].least, SkipTrue: 2},
			bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: spans[0].most, SkipTrue: 1},
			bpf.RetConstant{Val: pass},
			bpf.RetConstant{Val: refuse},
		}
	}
	half := len(spans) / 2
	low, high := search(spans[:half]), search(spans[half:])
	program := []bpf.Instruction{
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: spans[half].first, SkipTrue: 1},
		bpf.Jump{Skip: uint32(len(low))}, // At most 4096.
	}
	return slices.Concat(program, low, high)
}
