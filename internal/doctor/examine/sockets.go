package examine

import (
	"net"
	"net/netip"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
)

// kernel asks which features that the library uses the running kernel has.
func (e *examination) kernel() {
	k := &e.Kernel
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		k.Release = unix.ByteSliceToString(name.Release[:])
	}
	if has, err := batch.Probe(); err == nil {
		k.Batch, k.Segment, k.Merge = has.Batch, has.Segment, has.Merge
	} else {
		e.unseen("what the kernel has of UDP", err.Error(), "")
	}
	k.ReusePort = takes(unix.SOCK_DGRAM, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	k.MulticastAll = takes(unix.SOCK_DGRAM, unix.IPPROTO_IP, unix.IP_MULTICAST_ALL, 0)
	k.Zerocopy = takes(unix.SOCK_STREAM, unix.SOL_SOCKET, unix.SO_ZEROCOPY, 1)
	const rtoMin, micro = 45, 5000 // TCP_RTO_MIN_US of linux/tcp.h
	k.TCPTimers = takes(unix.SOCK_STREAM, unix.IPPROTO_TCP, rtoMin, micro)
	k.TCPWindow = tellsWindow()
	if fd, err := unix.MemfdCreate("doctor", unix.MFD_CLOEXEC); err == nil {
		k.Memfd = unix.Close(fd) == nil
	}
}

// takes reports whether sockets of a kind have an option.
func takes(kind, level, option, value int) bool {
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	return unix.SetsockoptInt(fd, level, option, value) == nil
}

// tellsWindow reports whether TCP_INFO includes the peer's window: older kernels fill in a shorter
// structure.
func tellsWindow() bool {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	var info unix.TCPInfo
	size := uint32(unix.SizeofTCPInfo)
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.IPPROTO_TCP, unix.TCP_INFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	return errno == 0 && uintptr(size) >= unsafe.Offsetof(info.Snd_wnd)+unsafe.Sizeof(info.Snd_wnd)
}

// sockets reads what the kernel allows sockets.
func (e *examination) sockets() {
	n, name := &e.Net, e.Chosen.Name
	n.RmemMax = e.sysctl("net/core/rmem_max", 0)
	n.WmemMax = e.sysctl("net/core/wmem_max", 0)
	n.OptmemMax = e.sysctl("net/core/optmem_max", 0)
	n.Backlog = e.sysctl("net/core/netdev_max_backlog", 0)
	n.RPFilter = max(e.sysctl("net/ipv4/conf/all/rp_filter", 0),
		e.sysctl("net/ipv4/conf/"+name+"/rp_filter", 0))
	if ports := strings.Fields(text(e.root, "proc/sys/net/ipv4/ip_local_port_range")); len(ports) == 2 {
		n.Ports = int(float(ports[1])) - int(float(ports[0])) + 1
	}
	l := e.ChosenLink()
	if l == nil {
		return
	}
	n.ChunkBytes = udp.ChunkFor(e.Family(), l.MTU)
	if e.settings.Chunk > 0 {
		n.ChunkBytes = e.settings.Chunk
	}
	receive := n.RmemMax
	if asked := e.settings.ReceiveBuffer; asked > 0 {
		receive = min(receive, asked)
	}
	const doubled = 2 // the kernel does, for its own share
	n.WindowFor = batch.Queue(doubled*receive, udp.PacketFor(e.Family(), n.ChunkBytes), l.Loopback)
}

// interfaceAt returns the index of an interface and its address.
func interfaceAt(name, address string) (int, netip.Addr, error) {
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return 0, netip.Addr{}, err
	}
	at, err := netip.ParseAddr(address)
	return ifi.Index, at, err
}
