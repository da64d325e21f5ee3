// Package ktls has the kernel seal the stream of a TCP connection, as records of TLS 1.3 by AES-256-GCM (Linux's
// Documentation/networking/tls.rst). It is for callers that write and read a descriptor themselves and cannot go by
// package record. It needs a kernel module, tls, which many hosts do not load.
package ktls

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// KeySize is the length of a direction's key, in bytes: 32 of AES-256, and 12 over which records are numbered.
const KeySize = 32 + 12

// Keys are those of the two directions of a connection, KeySize bytes each, which no other connection may have.
type Keys struct{ Out, In []byte }

// Numbers of linux/tls.h.
const (
	optionOut    = 1 // TLS_TX
	optionIn     = 2 // TLS_RX
	optionNoPad  = 4 // TLS_RX_EXPECT_NO_PAD
	version13    = 0x0304
	cipherAES256 = 52 // TLS_CIPHER_AES_GCM_256
)

// direction is tls12_crypto_info_aes_gcm_256 of linux/tls.h, which serves TLS 1.3, too. The first record is number 0.
type direction struct {
	version, cipher uint16
	iv              [8]byte // behind salt
	key             [32]byte
	salt            [4]byte
	number          [8]byte
}

// Seal has the kernel seal all bytes written to a connection from here on, and open all bytes that are not read yet;
// the other end does the same with the keys exchanged. A direction without a key stays as it is, for a later call. Seal
// cannot be undone. Forged, changed, repeated or missing records make reads fail by EBADMSG, EMSGSIZE or EINVAL.
func Seal(c net.Conn, k Keys) error {
	s, ok := c.(syscall.Conn)
	if !ok {
		return fmt.Errorf("ktls: %T has no descriptor", c)
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return fmt.Errorf("ktls: %w", err)
	}
	cerr := raw.Control(func(fd uintptr) { err = seal(int(fd), k) })
	return errors.Join(cerr, err)
}

func seal(fd int, k Keys) error {
	if err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_ULP, "tls"); err != nil &&
		!errors.Is(err, unix.EEXIST) {
		return unable("TLS (as root: modprobe tls; it needs Linux 5.1 and CONFIG_TLS): setsockopt TCP_ULP", err)
	}
	for option, key := range map[int][]byte{optionOut: k.Out, optionIn: k.In} {
		if key == nil {
			continue
		}
		if err := set(fd, option, key); err != nil {
			return unable("TLS 1.3 with AES-256-GCM (as root: modprobe gcm; it needs Linux 5.1): setsockopt SOL_TLS", err)
		}
	}
	// Nobody here pads records, so the kernel may open them where they are read to. It copies without (before 6.0).
	_ = unix.SetsockoptInt(fd, unix.SOL_TLS, optionNoPad, 1)
	return nil
}

// errUnable says that a kernel cannot, now or later.
var errUnable = errors.New("this host's kernel has no")

// unable says what of TLS is missing, unless the error is the connection's.
func unable(what string, err error) error {
	for _, lacking := range []error{unix.ENOENT, unix.ENOPROTOOPT, unix.EINVAL, unix.EOPNOTSUPP} {
		if errors.Is(err, lacking) {
			return fmt.Errorf("%w %s: %w", errUnable, what, err)
		}
	}
	return fmt.Errorf("have the kernel seal a connection: %w", err)
}

func set(fd, option int, key []byte) error {
	if len(key) != KeySize {
		return fmt.Errorf("a key of %d bytes: want %d", len(key), KeySize)
	}
	d := direction{version: version13, cipher: cipherAES256}
	copy(d.key[:], key)
	copy(d.salt[:], key[32:])
	copy(d.iv[:], key[36:])
	_, _, e := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_TLS, uintptr(option), uintptr(unsafe.Pointer(&d)),
		unsafe.Sizeof(d), 0)
	d = direction{}
	if e != 0 {
		return e
	}
	return nil
}

// known is what Able has found.
var known struct {
	sync.Mutex
	sure bool
	err  error
}

// Able returns why the kernel cannot Seal, with what helps, or nil. It has tried, on a connection of this host with
// itself: once a process, unless that failed for want of something else, such as descriptors.
func Able() error {
	known.Lock()
	defer known.Unlock()
	if known.sure {
		return known.err
	}
	err := try()
	if err != nil && !errors.Is(err, errUnable) {
		return fmt.Errorf("try the kernel's TLS on loopback: %w", err)
	}
	known.sure, known.err = true, err
	return err
}

// try seals a connection of this host with itself, and says something on it.
func try() error {
	ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	defer ln.Close() //nolint:errcheck // it was only listened on
	a, err := net.DialTCP("tcp", nil, ln.Addr().(*net.TCPAddr))
	if err != nil {
		return err
	}
	defer a.Close() //nolint:errcheck // all was said
	if err := a.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	b, err := acceptFrom(ln, a.LocalAddr().String())
	if err != nil {
		return err
	}
	defer b.Close() //nolint:errcheck // all was said
	there, back := make([]byte, KeySize), make([]byte, KeySize)
	_, _ = rand.Read(there) // never fails, says crypto/rand
	_, _ = rand.Read(back)
	if err := Seal(a, Keys{Out: there, In: back}); err != nil {
		return err
	}
	if err := Seal(b, Keys{Out: back, In: there}); err != nil {
		return err
	}
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		said, heard := []byte("torch-mcast"), make([]byte, 11)
		if _, err := way[0].Write(said); err != nil {
			return err
		}
		if _, err := io.ReadFull(way[1], heard); err != nil {
			return err
		}
		if !bytes.Equal(said, heard) {
			return fmt.Errorf("the kernel's TLS does not work on this host: %q was sent, and %q came", said, heard)
		}
	}
	return nil
}

// patience is for how long try waits.
const patience = 5 * time.Second

// acceptFrom returns the connection from an address, and ends those of others.
func acceptFrom(ln *net.TCPListener, addr string) (net.Conn, error) {
	deadline := time.Now().Add(patience)
	if err := ln.SetDeadline(deadline); err != nil {
		return nil, err
	}
	for {
		c, err := ln.Accept()
		if err != nil {
			return nil, err
		}
		if c.RemoteAddr().String() == addr {
			return c, c.SetDeadline(deadline)
		}
		_ = c.Close()
	}
}
