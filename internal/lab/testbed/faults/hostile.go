package faults

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// What strangers on the network do to a rank.

// kernelTable reads a table of the calling thread's network namespace, such as tcp, less its head.
func kernelTable(name string) (rows [][]string, err error) {
	f, err := os.Open("/proc/thread-self/net/" + name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		rows = append(rows, strings.Fields(lines.Text()))
	}
	if len(rows) > 0 {
		rows = rows[1:]
	}
	return rows, lines.Err()
}

// localPorts returns the ports of sockets that are in a state, as the kernel writes it, and
// reachable from other hosts.
func localPorts(table, state string) (ports []uint16, err error) {
	rows, err := kernelTable(table)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		if len(row) < 4 || row[3] != state || strings.HasPrefix(row[1], "0100007F:") {
			continue
		}
		_, port, _ := strings.Cut(row[1], ":")
		b, err := hex.DecodeString(port)
		if err != nil || len(b) != 2 {
			return nil, fmt.Errorf("%s: a socket at %q", table, row[1])
		}
		ports = append(ports, binary.BigEndian.Uint16(b))
	}
	return ports, nil
}

// The states of sockets in the kernel's tables.
const (
	listens = "0A"
	bound   = "07"
)

// ports returns those of a place.
func (s *Scene) ports(at target, tables ...string) (all []uint16, err error) {
	err = s.tb.In(at(s), func() error {
		for _, table := range tables {
			state := bound
			if strings.HasPrefix(table, "tcp") {
				state = listens
			}
			found, err := localPorts(table, state)
			if err != nil {
				return err
			}
			all = append(all, found...)
		}
		return nil
	})
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("%s has no open port", at(s))
	}
	return all, err
}

func (s *Scene) addr(at target) netip.Addr {
	for _, h := range s.tb.Hosts() {
		if h.Namespace == at(s) {
			return h.Addr
		}
	}
	for _, n := range s.tb.Nodes() {
		if n.Namespace == at(s) {
			return n.Addr
		}
	}
	return netip.Addr{}
}

// mostUngreeted is how many descriptors strangers may hold in a process.
const mostUngreeted = 64

// strangers has a host connect so often to all listeners in a place, say nothing for a time, and
// go. The process there must not take more than mostUngreeted connections.
func strangers(from, at target, pid func(*Scene) (int, error), count int, d time.Duration) func(*Scene) error {
	return func(s *Scene) error {
		ports, err := s.ports(at, "tcp", "tcp6")
		if err != nil {
			return err
		}
		id, err := pid(s)
		if err != nil {
			return err
		}
		before, err := openOf(id)
		if err != nil {
			return err
		}
		var conns []net.Conn
		defer func() {
			for _, c := range conns {
				_ = c.Close()
			}
		}()
		// From one thread: goroutines would be in other namespaces.
		if err := s.tb.In(from(s), func() error {
			d := net.Dialer{FallbackDelay: -1, Timeout: time.Second}
			for i := range count {
				c, err := d.Dial("tcp4", netip.AddrPortFrom(s.addr(at), ports[i%len(ports)]).String())
				if err == nil { // else it is refused, which is well
					conns = append(conns, c)
				}
			}
			return nil
		}); err != nil {
			return err
		}
		for end := time.Now().Add(d); time.Now().Before(end); {
			if err := s.wait(100 * time.Millisecond); err != nil {
				return err
			}
			now, err := openOf(id)
			if err != nil {
				return err
			}
			// What the job itself opens meanwhile is less than a few.
			if now-before > mostUngreeted+8 {
				s.report("%d of %d strangers hold descriptors", now-before, count)
				return nil
			}
		}
		return nil
	}
}

// openOf returns how many descriptors a process has.
func openOf(pid int) (int, error) {
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(open), err
}

func processOf(rank int) func(*Scene) (int, error) {
	return func(s *Scene) (int, error) { return s.run.Process(rank), nil }
}

// groups returns the multicast groups of a place's eth0.
func (s *Scene) groups(at target) (all []netip.Addr, err error) {
	err = s.tb.In(at(s), func() error {
		rows, err := kernelTable("igmp")
		if err != nil {
			return err
		}
		for _, row := range rows {
			b, err := hex.DecodeString(row[0])
			if err != nil || len(b) != 4 { // a device's line
				continue
			}
			a := netip.AddrFrom4([4]byte{b[3], b[2], b[1], b[0]})
			if a.As4()[0] == 239 {
				all = append(all, a)
			}
		}
		return nil
	})
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("%s is in no group", at(s))
	}
	return all, err
}

// noise has a host send random datagrams to all UDP ports of a place and to its groups.
func noise(from, at target, count int) func(*Scene) error {
	return func(s *Scene) error {
		ports, err := s.ports(at, "udp")
		if err != nil {
			return err
		}
		groups, err := s.groups(at)
		if err != nil {
			return err
		}
		return s.tb.In(from(s), func() error {
			c, err := net.ListenUDP("udp4", nil)
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			random := rand.New(rand.NewPCG(1, 2))
			to := append(groups, s.addr(at))
			b := make([]byte, 8896)
			for i := range count {
				for j := 0; j < len(b); j += 8 {
					binary.NativeEndian.PutUint64(b[j:], random.Uint64())
				}
				size := 1 + random.IntN(200)
				if i%50 == 0 {
					size = len(b)
				}
				// That a queue is full is well.
				_, _ = c.WriteToUDPAddrPort(b[:size], netip.AddrPortFrom(to[i%len(to)], ports[i/len(to)%len(ports)]))
			}
			return nil
		})
	}
}

// captured is an IPv4 packet that passed a place, with its header.
type captured []byte

func (p captured) header() int             { return int(p[0]&15) * 4 }
func (p captured) destination() netip.Addr { return netip.AddrFrom4([4]byte(p[16:20])) }
func (p captured) port() uint16            { return binary.BigEndian.Uint16(p[p.header()+2:]) }
func (p captured) payload() []byte         { return p[p.header()+8:] }

// capture returns UDP packets to a group that arrive at a place.
func (s *Scene) capture(at target, count int) (all []captured, err error) {
	err = s.tb.In(at(s), func() error {
		const protocol = unix.ETH_P_IP>>8 | unix.ETH_P_IP&0xff<<8 // in network order
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, protocol)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, unix.Close(fd)) }()
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}); err != nil {
			return err
		}
		b := make([]byte, 1<<16)
		for len(all) < count {
			n, _, err := unix.Recvfrom(fd, b, 0)
			if err != nil {
				return fmt.Errorf("capture multicast in %s: %w", at(s), err)
			}
			p := captured(b[:n])
			if n > 28 && p[9] == unix.IPPROTO_UDP && p.destination().IsMulticast() {
				all = append(all, captured(append([]byte(nil), p...)))
			}
		}
		return nil
	})
	return all, err
}

// forge has a host send again the datagrams that it has heard from the others, unchanged or changed
// a little: shorter, with other bytes, with another header.
func forge(from target, count int) func(*Scene) error {
	return func(s *Scene) error {
		heard, err := s.capture(from, 64)
		if err != nil {
			return err
		}
		return s.tb.In(from(s), func() error {
			c, err := net.ListenUDP("udp4", nil)
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			random := rand.New(rand.NewPCG(3, 4))
			for i := range count {
				p := heard[random.IntN(len(heard))]
				b := append([]byte(nil), p.payload()...)
				switch i % 4 {
				case 1:
					b = b[:len(b)/2]
				case 2:
					b[len(b)-1] ^= 0xff
				case 3:
					b[random.IntN(min(len(b), 40))] ^= byte(1 + random.IntN(255))
				}
				_, _ = c.WriteToUDPAddrPort(b, netip.AddrPortFrom(p.destination(), p.port())) // a full queue is well
			}
			return nil
		})
	}
}

// unreachable has a host answer multicast of others by "port unreachable" (ICMP), again and again.
func unreachable(from target, count int) func(*Scene) error {
	return func(s *Scene) error {
		heard, err := s.capture(from, 64)
		if err != nil {
			return err
		}
		return s.tb.In(from(s), func() error {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
			if err != nil {
				return err
			}
			defer func() { _ = unix.Close(fd) }()
			for i := range count {
				p := heard[i%len(heard)]
				const portUnreachable = 3
				b := append([]byte{3, portUnreachable, 0, 0, 0, 0, 0, 0}, p[:p.header()+8]...)
				binary.BigEndian.PutUint16(b[2:], checksum(b))
				if err := unix.Sendto(fd, b, 0, &unix.SockaddrInet4{Addr: [4]byte(p[12:16])}); err != nil &&
					!errors.Is(err, unix.ENOBUFS) {
					return err
				}
				time.Sleep(time.Millisecond)
			}
			return nil
		})
	}
}

// checksum is the Internet's.
func checksum(b []byte) uint16 {
	sum := uint32(0)
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum>>16 > 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// setting writes a setting of a place's network namespace, such as ipv4/igmp_max_memberships.
func setting(at target, name, value string) func(*Scene) error {
	return inside(at, func(*Scene) error {
		return os.WriteFile(filepath.Join("/proc/sys/net", name), []byte(value), 0) // of the thread's namespace
	})
}
