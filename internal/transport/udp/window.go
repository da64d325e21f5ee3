package udp

import (
	"net"

	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
)

// defaultWindow bounds what Traits promises to hold by default. More
// never hurt here: 4 ranks on 2 cores took 48 ms for 16 MiB each with 1 MiB
// under way, 38 with 2 or 3; and it saves credits.
const defaultWindow = 8 << 20

// window returns how many chunks a socket's queue holds for certain while
// nobody reads it, up to o.Window bytes of them. rcvBuf is what SO_RCVBUF reads back.
func window(rcvBuf int, o *Options) int {
	queue := batch.Queue(rcvBuf, o.PacketFor(o.Chunk), o.Interface.Flags&net.FlagLoopback != 0)
	return max(1, min(queue, o.Window/o.Chunk))
}
