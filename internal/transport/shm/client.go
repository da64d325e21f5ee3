package shm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

var errRefused = errors.New("shm: refused by the region's server: another job, key or user, no such rank, or one " +
	"that has its region already")

var errWithheld = errors.New("shm: the kernel withholds the region's descriptor: perhaps a security module (SELinux, " +
	"AppArmor) forbids it")

// Client is a rank's connection to a Server on its host, on which it has asked for the region.
type Client struct {
	job        uint64
	rank, size int
	conn       *net.UnixConn
}

// Dial asks the server for a rank's region. It fails with fabric.ErrUnavailable where the server
// cannot be reached. The server answers each rank once, so after an error of Attach that passes
// call that again, not Dial.
func Dial(ctx context.Context, address string, job, key uint64, rank, size int) (*Client, error) {
	if size < 1 || size > MaxSize {
		return nil, fmt.Errorf("shm: ranks of a host: %d, allowed are 1 to %d", size, MaxSize)
	}
	if rank < 0 || rank >= size {
		return nil, fmt.Errorf("shm: rank %d, allowed are 0 to %d", rank, size-1)
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", address)
	if err != nil {
		return nil, fabric.Unavailable("shm: connect to the server of the region, a rank of this host: has it ended, or "+
			"does a sandbox keep the two apart? %w", err)
	}
	c := &Client{job: job, rank: rank, size: size, conn: conn.(*net.UnixConn)}
	if err := c.ask(ctx, key); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Client) ask(ctx context.Context, key uint64) error {
	if err := sameUser(c.conn); err != nil { // before it learns the key
		return err
	}
	hello := wire.Hello{Purpose: wire.PurposeControl, Rank: uint16(c.rank), Job: c.job, Key: key}
	buf := make([]byte, wire.HelloSize)
	hello.Put(buf)
	defer c.until(ctx)()
	_, err := c.conn.Write(buf)
	return c.explain(ctx, err)
}

// until bounds reads and writes by ctx.
func (c *Client) until(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })
}

// explain says what an error of the connection means.
func (c *Client) explain(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF), errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		err = errRefused
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = fmt.Errorf("shm: no answer from the region's server: %w", context.Cause(ctx))
	}
	return fmt.Errorf("shared memory of job %#x: %w", c.job, err)
}

// Attach waits for the region and maps it. While this process has no descriptor left for it the
// error wraps EMFILE; Attach may be called again then.
func (c *Client) Attach(ctx context.Context) (*Region, error) {
	defer c.until(ctx)()
	fd, err := c.receive()
	if err != nil {
		return nil, c.explain(ctx, err)
	}
	defer unix.Close(fd) //nolint:errcheck // the mapping keeps the memory
	return open(fd, c.job, c.rank, c.size)
}

// Close hangs up. The region stays.
func (c *Client) Close() { _ = c.conn.Close() }

// receive reads the answer: one byte and the region's descriptor. It only looks at it, so that it
// can do so again: what cannot be installed the kernel cuts off a message that is read.
func (c *Client) receive() (fd int, err error) {
	raw, err := c.conn.SyscallConn()
	if err != nil {
		return -1, fmt.Errorf("shm: %w", err)
	}
	oob := make([]byte, unix.CmsgSpace(4))
	for range 10 {
		var n, read, flags int
		e := raw.Read(func(s uintptr) bool {
			read, n, flags, _, err = unix.Recvmsg(int(s), make([]byte, 1), oob, unix.MSG_PEEK|unix.MSG_CMSG_CLOEXEC)
			return !errors.Is(err, unix.EAGAIN)
		})
		if err := errors.Join(e, err); err != nil {
			return -1, fmt.Errorf("shm: read the region's descriptor: %w", err)
		}
		if read == 0 {
			return -1, io.EOF
		}
		if flags&unix.MSG_CTRUNC == 0 {
			return descriptorOf(oob[:n])
		}
		// The kernel does not say why. If there is a descriptor to be had, another thread may just
		// have closed it: look again.
		spare := -1
		e = raw.Control(func(s uintptr) { spare, err = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 0) })
		if err := errors.Join(e, err); err != nil {
			return -1, fmt.Errorf("shm: no descriptor is left for the region: %w", err)
		}
		_ = unix.Close(spare)
	}
	return -1, errWithheld
}

// descriptorOf returns the descriptor that came with a message.
func descriptorOf(oob []byte) (fd int, err error) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err == nil && len(msgs) == 1 {
		var fds []int
		if fds, err = unix.ParseUnixRights(&msgs[0]); err == nil && len(fds) == 1 {
			return fds[0], nil
		}
	}
	return -1, fmt.Errorf("shm: the region's server sent no descriptor: %w", err)
}
