package udp

import "golang.org/x/sys/unix"

// Unsent implements fabric.Gather. The kernel counts the memory of packets, which is somewhat more than
// their bytes.
func (g *Gather) Unsent() int {
	bytes := 0
	for i := range g.senders {
		g.stats.syscalls.Add(1)
		if n, err := unix.IoctlGetInt(g.senders[i].FD, unix.SIOCOUTQ); err == nil {
			bytes += n
		}
	}
	return (bytes + g.chunk - 1) / g.chunk
}
