package bench

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/cli"
	"github.com/torch-mcast/torch-mcast/internal/config"
)

// buffers returns the bytes that each rank needs for shards of n bytes.
func (b *bench) buffers(n int) int {
	one, all := n, n*b.ranks
	if b.inPlace {
		one = 0
	}
	switch b.collective {
	case "broadcast":
		return 2 * n // one to copy from
	case "allreduce":
		if b.inPlace {
			return all
		}
		return 2 * all
	case "overlap":
		return 2 * (one + all)
	}
	return one + all
}

// fits reports buffers of ranks on this host that its memory cannot hold: the kernel would end one
// of their processes, without a word. It does not know the limits of a control group.
func (b *bench) fits() error {
	var host unix.Sysinfo_t
	if err := unix.Sysinfo(&host); err != nil {
		return err
	}
	largest, memory := slices.Max(b.sizes), int(host.Totalram+host.Totalswap)*int(host.Unit)
	perRank := memory / b.ranks
	if largest <= perRank && b.buffers(largest) <= perRank { // the first, as the second could overflow
		return nil
	}
	return config.Mistakef("--bytes: %s a rank do not fit: all buffers (--ranks=%d) take %d times that, and this host "+
		"has %s",
		config.FormatBytes(largest), b.ranks, b.ranks*b.buffers(1), cli.BytesText(uint64(memory)))
}
