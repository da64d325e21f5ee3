// Package systest helps to test the socket fabrics: connections over loopback,
// network namespaces, processes that are given connections, and bytes to send.
package systest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// Pattern generates the bytes that a rank sends; seeds that differ give
// different bytes.
type Pattern uint64

// NewPattern returns the bytes of one rank in one operation.
func NewPattern(rank, operation int) *Pattern {
	p := Pattern(uint64(rank)<<48 ^ uint64(operation)<<16 ^ 0x9e3779b97f4a7c15)
	return &p
}

// Fill writes the next bytes. All but the last call want a multiple of 8. Nobody else has them yet,
// so the race detector need not look on.
//
//go:norace
func (p *Pattern) Fill(b []byte) {
	for ; len(b) >= 8; b = b[8:] {
		binary.LittleEndian.PutUint64(b, p.next())
	}
	if len(b) > 0 {
		var last [8]byte
		binary.LittleEndian.PutUint64(last[:], p.next())
		copy(b, last[:])
	}
}

func (p *Pattern) next() uint64 {
	*p += 0x9e3779b97f4a7c15
	return uint64(*p ^ *p>>29)
}

// Check compares the next bytes. All but the last call want a multiple of 8.
func (p *Pattern) Check(b []byte) error {
	block := make([]byte, 32<<10)
	for at := 0; at < len(b); at += len(block) {
		want := block[:min(len(block), len(b)-at)]
		p.Fill(want)
		if !bytes.Equal(b[at:at+len(want)], want) {
			return fmt.Errorf("bytes %d to %d of %d differ from what was sent", at, at+len(want), len(b))
		}
	}
	return nil
}

// Pair returns the two ends of a TCP connection over loopback, which are closed when the test ends.
func Pair(t testing.TB) (a, b *net.TCPConn) {
	t.Helper()
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	a, err = net.DialTCP("tcp4", nil, l.Addr().(*net.TCPAddr))
	require.NoError(t, err)
	b, err = l.AcceptTCP()
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = a.Close() // the test may have closed either
		_ = b.Close()
	})
	return a, b
}

// Mesh connects every two ranks: conns[r][q] is rank r's end of the
// connection to rank q.
func Mesh(t testing.TB, size int) (conns []map[int]net.Conn) {
	t.Helper()
	conns = make([]map[int]net.Conn, size)
	for a := range conns {
		conns[a] = make(map[int]net.Conn)
		for b := range a {
			conns[a][b], conns[b][a] = Pair(t)
		}
	}
	return conns
}

// variable tells a process that it is a rank, and which.
const variable = "TORCH_MCAST_TEST_RANK"

// order is the task of a process.
type order[Job any] struct {
	Rank, Size int
	Job        Job
}

// Run starts a process a rank, of this very test binary, and returns what
// each of them answered. TestMain of the binary has to call Serve.
func Run[Job, Result any](t testing.TB, size int, job Job) []Result {
	t.Helper()
	conns := Mesh(t, size)
	commands := make([]*exec.Cmd, size)
	answers := make([]*json.Decoder, size)
	for rank := range size {
		text, err := json.Marshal(order[Job]{rank, size, job})
		require.NoError(t, err)
		c := exec.Command(os.Args[0], "-test.run=^$")
		c.Env = append(os.Environ(), variable+"="+string(text))
		c.Stderr = os.Stderr
		out, err := c.StdoutPipe()
		require.NoError(t, err)
		commands[rank], answers[rank] = c, json.NewDecoder(out)
		for to := range size {
			if to == rank {
				continue
			}
			f, err := conns[rank][to].(*net.TCPConn).File()
			require.NoError(t, err)
			c.ExtraFiles = append(c.ExtraFiles, f)
		}
	}
	for rank, c := range commands {
		require.NoError(t, c.Start())
		for _, f := range c.ExtraFiles {
			require.NoError(t, f.Close())
		}
		for _, conn := range conns[rank] {
			require.NoError(t, conn.Close())
		}
	}
	results := make([]Result, size)
	for rank, c := range commands {
		unread := answers[rank].Decode(&results[rank])
		require.NoError(t, c.Wait(), "rank %d", rank)
		require.NoError(t, unread, "rank %d", rank)
	}
	return results
}

// Serve is work in a process that Run started: it never returns there. In
// others it does nothing.
func Serve[Job, Result any](work func(rank, size int, conns map[int]net.Conn, job Job) (Result, error)) {
	text := os.Getenv(variable)
	if text == "" {
		return
	}
	if err := serve(text, work); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serve[Job, Result any](
	text string, work func(rank, size int, conns map[int]net.Conn, job Job) (Result, error),
) error {
	var o order[Job]
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	conns := make(map[int]net.Conn)
	for rank := range o.Size {
		if rank == o.Rank {
			continue
		}
		f := os.NewFile(uintptr(3+len(conns)), "connection")
		c, err := net.FileConn(f)
		if err != nil {
			return fmt.Errorf("rank %d: connection to rank %d: %w", o.Rank, rank, err)
		}
		if err := f.Close(); err != nil {
			return err
		}
		conns[rank] = c
	}
	result, err := work(o.Rank, o.Size, conns, o.Job)
	if err != nil {
		return fmt.Errorf("rank %d: %w", o.Rank, err)
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}
