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
	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
)

// attachFilter makes a socket refuse, before they take room in its queue, all datagrams but those
// of this job and version from another rank of the group, sent from that rank's address.
func attachFilter(fd int, o *Options) error {
	for most := mostSpans(o.Sources); ; most /= 2 {
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

// The results of a filter: how many bytes to keep.
const pass, refuse = 1 << 18, 0

// networkHeader is where a filter finds the IP header (SKF_NET_OFF in linux/filter.h); it sees
// datagrams from their UDP header on.
const networkHeader = 0xfff00000

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
	endTests(program)
	if len(sources) == 0 {
		return append(program, bpf.RetConstant{Val: pass})
	}
	return append(program, search(sources, batch.FamilyOf(o.Sources[0]).Source)...)
}

// endTests has each test of a program that comes true skip to its last instruction.
func endTests(program []bpf.Instruction) {
	for i, in := range program {
		if test, ok := in.(bpf.JumpIf); ok {
			test.SkipTrue = uint8(len(program) - 1 - i - 1)
			program[i] = test
		}
	}
}

// span is a stretch of ranks, up to the next span's first, and the least and the greatest of their
// addresses.
type span struct {
	first       uint32
	least, most netip.Addr
}

// mostSpans bounds the length of a filter: Linux takes 4096 instructions, and the head has fewer than 64.
// search makes for each span two to find it, two verdicts, and two for each word of an address, or three
// for the last one that it looks at.
func mostSpans(sources []netip.Addr) int {
	if len(sources) == 0 {
		return 1
	}
	words := sources[0].BitLen() / 32
	return (4096 - 64) / (2 + 2 + 2*words + 1)
}

// spansOf returns the spans of ranks with these addresses, most of them at most. Ranks of one host follow
// one another as a rule, and so do the addresses of neighbours; so with up to as many hosts
// each span is of one address, and with more hosts of a few close ones.
func spansOf(sources []netip.Addr, most int) (spans []span) {
	for rank, source := range sources {
		source = source.WithZone("")
		if n := len(spans); n == 0 || spans[n-1].least != source {
			spans = append(spans, span{uint32(rank), source, source}) // Below maxRanks.
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
			if other.least.Less(s.least) {
				s.least = other.least
			}
			if s.most.Less(other.most) {
				s.most = other.most
			}
		}
		merged = append(merged, s)
	}
	return merged
}

// search finds the span of the rank in the accumulator, by halves, and passes the datagram if it
// comes from there. An IP header has the sender's address at an offset.
func search(spans []span, offset int) []bpf.Instruction {
	if len(spans) == 1 {
		return spans[0].check(offset)
	}
	half := len(spans) / 2
	low, high := search(spans[:half], offset), search(spans[half:], offset)
	program := []bpf.Instruction{
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: spans[half].first, SkipTrue: 1},
		bpf.Jump{Skip: uint32(len(low))}, // At most 4096.
	}
	return slices.Concat(program, low, high)
}

// check passes a datagram if its sender's address lies in the span, and refuses any other. It looks at
// the words that all addresses of the span have in common, and at the first word in which they differ.
func (s span) check(offset int) (program []bpf.Instruction) {
	least, most := s.least.AsSlice(), s.most.AsSlice()
	for at := 0; at < len(least); at += 4 {
		from, to := binary.BigEndian.Uint32(least[at:]), binary.BigEndian.Uint32(most[at:])
		program = append(program, bpf.LoadAbsolute{Off: networkHeader + uint32(offset+at), Size: 4}) // below 40
		if from == to {
			program = append(program, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: from})
			continue
		}
		program = append(program, bpf.JumpIf{Cond: bpf.JumpLessThan, Val: from},
			bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: to})
		break
	}
	program = append(program, bpf.RetConstant{Val: pass}, bpf.RetConstant{Val: refuse})
	endTests(program)
	return program
}
