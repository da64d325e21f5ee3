package examine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/doctor"
	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
)

// igmp looks at how the chosen interface speaks IGMP, and listens for a querier.
func (e *examination) igmp(ctx context.Context) {
	name, i := e.Chosen.Name, &e.IGMP
	i.MaxMemberships = e.sysctl("net/ipv4/igmp_max_memberships", -1)
	i.Forced = max(e.sysctl("net/ipv4/conf/all/force_igmp_version", 0),
		e.sysctl("net/ipv4/conf/"+name+"/force_igmp_version", 0))
	i.Version = igmpVersion(text(e.root, "proc/thread-self/net/igmp"), name)
	l := e.ChosenLink()
	if l == nil || l.Loopback || e.Listen <= 0 || e.Chosen.Error != "" || e.Family() == batch.IPv6 {
		return // with an address of IPv6 it speaks MLD instead
	}
	const remedy = "sudo mcast doctor, or give it CAP_NET_RAW"
	q, err := listen(ctx, e.Listen, name, e.Chosen.Address)
	if err != nil {
		e.unseen("whether a querier asks on "+name, err.Error(), remedy)
		return
	}
	i.Querier = q
}

// igmpVersion finds the version of an interface, V1 to V3, in /proc/net/igmp.
func igmpVersion(table, name string) string {
	for _, line := range strings.Split(table, "\n") {
		// "4	eth0      :     1      V3", and below it a line for each group
		number, rest, _ := strings.Cut(line, "\t")
		words := strings.Fields(rest)
		if number != "" && len(words) == 4 && words[0] == name {
			return words[3]
		}
	}
	return ""
}

// IGMP's messages (RFC 2236, 2).
const (
	igmpQuery  = 0x11
	igmpReport = 0x16
	igmpLeave  = 0x17
	longQuery  = 12 // bytes of one of version 3, at least (RFC 3376, 4.1)
)

// listen waits for a query. So that it need not wait for the next one of all groups, which comes
// every 125 s, it joins a group and leaves it: a querier then asks at once whether somebody else is
// in it (RFC 2236, 3).
func listen(ctx context.Context, most time.Duration, name, address string) (q doctor.Querier, err error) {
	index, at, err := interfaceAt(name, address)
	if err != nil {
		return q, err
	}
	protocol := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_IP))
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return q, fmt.Errorf("a packet socket: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := onlyIGMP(fd); err != nil {
		return q, err
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: index}); err != nil {
		return q, fmt.Errorf("bind to %s: %w", name, err)
	}
	// A query for one group is sent to that group, which nobody here is in any more.
	all := &unix.PacketMreq{Ifindex: int32(index), Type: unix.PACKET_MR_ALLMULTI}
	if err := unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, all); err != nil {
		return q, fmt.Errorf("receive all multicast of %s: %w", name, err)
	}
	start := time.Now()
	_ = leave(index, at) // without, there is still the querier's own time
	for ctx.Err() == nil && time.Since(start) < most && !q.Heard {
		left := min(most-time.Since(start), 100*time.Millisecond) // so that ctx is looked at
		_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
		for b := make([]byte, 256); !q.Heard; {
			n, from, err := unix.Recvfrom(fd, b, 0)
			if err != nil {
				break
			}
			// What this host sends comes by as well: it may be the querier itself.
			if sent, ok := from.(*unix.SockaddrLinklayer); ok && sent.Pkttype == unix.PACKET_OUTGOING {
				continue
			}
			q = query(b[:n], at)
		}
	}
	q.Listened = time.Since(start)
	return q, nil
}

// query reads an IP packet that may be a query of somebody else.
func query(packet []byte, own netip.Addr) (q doctor.Querier) {
	if len(packet) < 20 {
		return q
	}
	header := int(packet[0]&15) * 4
	if header < 20 || len(packet) < header+8 || packet[header] != igmpQuery {
		return q
	}
	from := netip.AddrFrom4([4]byte(packet[12:16]))
	if from == own {
		return q
	}
	q = doctor.Querier{Heard: true, From: from.String(), Version: 2}
	length := int(packet[2])<<8 | int(packet[3])
	switch {
	case length-header >= longQuery:
		q.Version = 3
	case packet[header+1] == 0:
		q.Version = 1
	}
	return q
}

// onlyIGMP keeps all else from the socket.
func onlyIGMP(fd int) error {
	const protocol = 9 // in an IPv4 header, with which a packet of SOCK_DGRAM begins
	code, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: protocol, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_IGMP, SkipFalse: 1},
		bpf.RetConstant{Val: 256},
		bpf.RetConstant{Val: 0},
	})
	if err != nil {
		return err
	}
	filter := make([]unix.SockFilter, len(code))
	for i, c := range code {
		filter[i] = unix.SockFilter{Code: c.Op, Jt: c.Jt, Jf: c.Jf, K: c.K}
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
}

// leave says, as this host would, that it has joined a group that nobody else is in, and that it
// leaves it. The kernel by itself may take 10 s to say the first, and then keeps the second back.
func leave(index int, own netip.Addr) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_IGMP)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	routerAlert := string([]byte{0x94, 4, 0, 0}) // RFC 2113, which RFC 2236 asks for
	via := &unix.IPMreqn{Ifindex: int32(index), Address: own.As4()}
	if err := errors.Join(unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, via),
		unix.SetsockoptString(fd, unix.IPPROTO_IP, unix.IP_OPTIONS, routerAlert)); err != nil {
		return err
	}
	group, routers := randomGroup(batch.IPv4), netip.AddrFrom4([4]byte{224, 0, 0, 2})
	return errors.Join(
		unix.Sendto(fd, message(igmpReport, group), 0, &unix.SockaddrInet4{Addr: group.As4()}),
		unix.Sendto(fd, message(igmpLeave, group), 0, &unix.SockaddrInet4{Addr: routers.As4()}))
}

// message makes one of IGMP version 2 about a group (RFC 2236, 2).
func message(kind byte, group netip.Addr) []byte {
	at := group.As4()
	b := []byte{kind, 0, 0, 0, at[0], at[1], at[2], at[3]}
	sum := uint32(0)
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	sum = sum&0xffff + sum>>16
	binary.BigEndian.PutUint16(b[2:], ^uint16(sum+sum>>16))
	return b
}

// randomGroup draws a group from the block that jobs take theirs from.
func randomGroup(f *batch.Family) netip.Addr {
	r := rand.Uint32()
	if f == batch.IPv6 {
		return netip.AddrFrom16([16]byte{0xff, 0x15, 12: byte(r >> 24), byte(r >> 16), byte(r >> 8), byte(r)})
	}
	return netip.AddrFrom4([4]byte{239, 192 | byte(r>>16)&3, byte(r >> 8), byte(r)})
}
