package udp

import (
	"fmt"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/wire"
)

// attachFilter makes a socket refuse, before they take room in its queue, all
// datagrams but those of this job and version from another rank of the group.
func attachFilter(fd int, o *Options) error {
	program, err := bpf.Assemble(filter(o))
	if err != nil {
		return fmt.Errorf("assemble socket filter: %w", err)
	}
	raw := make([]unix.SockFilter, len(program))
	for i, in := range program {
		raw[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	prog := unix.SockFprog{Len: uint16(len(raw)), Filter: &raw[0]} //nolint:gosec // A dozen instructions.
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &prog); err != nil {
		return fmt.Errorf("attach socket filter: %w", err)
	}
	return nil
}

// filter is the program. It sees datagrams from their UDP header on. A load
// beyond the end of one refuses it; each test skips to the last instruction,
// which refuses too.
func filter(o *Options) []bpf.Instruction {
	const pass, refuse = 1 << 18, 0
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
		refuseIf(bpf.JumpNotEqual, uint32(o.Job)), //nolint:gosec // The low half.
		load(wire.DataOffRoot, 2),
		refuseIf(bpf.JumpEqual, uint32(o.Rank)),          //nolint:gosec // 0 to 65535.
		refuseIf(bpf.JumpGreaterOrEqual, uint32(o.Size)), //nolint:gosec // 1 to 65536.
		bpf.RetConstant{Val: pass},
		bpf.RetConstant{Val: refuse},
	}
	last := len(program) - 1
	for i, in := range program {
		if test, ok := in.(bpf.JumpIf); ok {
			test.SkipTrue = uint8(last - i - 1) //nolint:gosec // A dozen instructions.
			program[i] = test
		}
	}
	return program
}
