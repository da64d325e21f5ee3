package examine

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/doctor"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
)

const (
	testTime   = time.Second // at most, each
	testWindow = 8 << 20     // bytes, what a rank has in flight at most by default
)

// tests tries what the library will do, on this host alone.
func (e *examination) tests() {
	if e.ChosenLink() == nil || e.Chosen.Error != "" {
		return // Diagnose has the reason
	}
	at := netip.AddrPortFrom(netip.MustParseAddr(e.Chosen.Address), 0)
	f := e.Family()
	e.test(doctor.TestSmall, func() error { return e.loopsBack(udp.MinPacket(f)) })
	e.test(doctor.TestFull, func() error { return e.loopsBack(udp.PacketFor(f, udp.ChunkFor(f, e.ChosenLink().MTU))) })
	e.test(doctor.TestUDP, func() error { return echoUDP(at) })
	e.test(doctor.TestTCP, func() error { return echoTCP(at) })
	e.test(doctor.TestMemory, e.fill)
}

func (e *examination) test(name string, try func() error) {
	start := time.Now()
	t := doctor.Test{Name: name}
	if err := try(); err != nil {
		t.Error = err.Error()
	}
	t.Took = time.Since(start)
	e.Tests = append(e.Tests, t)
}

// loopsBack multicasts packets of so many bytes on the chosen interface until one comes back. They
// do not leave this host: their TTL is 0.
func (e *examination) loopsBack(packet int) error {
	ifi, err := net.InterfaceByName(e.Chosen.Name)
	if err != nil {
		return err
	}
	p, err := udp.OpenProber(udp.Options{
		Size: 1, Job: rand.Uint64(), Group: randomGroup(e.Family()), Port: 10000 + uint16(rand.IntN(20000)),
		Interface: ifi, Sources: []netip.Addr{netip.MustParseAddr(e.Chosen.Address)},
	})
	if err != nil {
		return err
	}
	defer p.Close()
	const tries = 5
	for range tries {
		if err := p.Multicast(packet); err != nil {
			return fmt.Errorf("send %d bytes: %w", packet, err)
		}
		heard := false
		p.Listen(testTime/tries, func(h []udp.Heard) bool {
			heard = h[0].Multicast >= packet
			return heard
		})
		if heard {
			return nil
		}
	}
	return fmt.Errorf("of %d packets of %d bytes none came back within %v", tries, packet, testTime)
}

// echoUDP has one socket of the chosen address send to another, a few times if nothing comes: an address that is
// new may not be reached at first.
func echoUDP(at netip.AddrPort) (err error) {
	const tries = 5
	for range tries {
		if err = echoDatagram(at, testTime/2/tries); !errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
	}
	return err
}

func echoDatagram(at netip.AddrPort, within time.Duration) error {
	to, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		return err
	}
	defer func() { _ = to.Close() }()
	from, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(at), to.LocalAddr().(*net.UDPAddr))
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	return exchanged(from, to, within)
}

// echoTCP has one connection of the chosen address to itself.
func echoTCP(at netip.AddrPort) error {
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }()
	d := net.Dialer{Timeout: testTime / 2}
	port := l.Addr().(*net.TCPAddr).AddrPort().Port() // its address has lost its zone
	from, err := d.Dial("tcp", netip.AddrPortFrom(at.Addr(), port).String())
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	_ = l.SetDeadline(time.Now().Add(testTime / 2)) // it is open
	to, err := l.Accept()
	if err != nil {
		return err
	}
	defer func() { _ = to.Close() }()
	return exchanged(from, to, testTime/2)
}

// exchanged sends a few bytes, which may take so long.
func exchanged(from, to net.Conn, within time.Duration) error {
	sent, got := []byte("torch-mcast"), make([]byte, 64)
	if err := errors.Join(from.SetDeadline(time.Now().Add(within)), to.SetDeadline(time.Now().Add(within))); err != nil {
		return err
	}
	if _, err := from.Write(sent); err != nil {
		return err
	}
	n, err := to.Read(got)
	if err == nil && !bytes.Equal(sent, got[:n]) {
		err = fmt.Errorf("%q was sent, %q came", sent, got[:n])
	}
	return err
}

// fill takes the shared memory of a window and writes to every page. Where that might have the
// kernel end this process it does not try.
func (e *examination) fill() error {
	if left, _ := e.Memory.Left(); left > 0 && left < 4*testWindow {
		return fmt.Errorf("%s are left, too little to try", doctor.ByteCount(left))
	}
	fd, err := unix.MemfdCreate("mcast-doctor", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("memfd_create: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Ftruncate(fd, testWindow); err != nil {
		return err
	}
	b, err := unix.Mmap(fd, 0, testWindow, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("mmap: %w", err)
	}
	for i := 0; i < len(b); i += unix.Getpagesize() {
		b[i] = 1
	}
	return unix.Munmap(b)
}
