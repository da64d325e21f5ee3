package session

import (
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/identity"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// relay passes the bytes of a switch to a member through change, with the number of bytes before them. It passes the
// member's bytes unchanged.
func relay(t *testing.T, n *node, change func(before int, b []byte) []byte) (address string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		member, err := ln.Accept()
		if err != nil {
			return
		}
		defer member.Close()
		node, err := net.Dial("tcp", n.Addr().String())
		if err != nil {
			return
		}
		defer node.Close()
		go func() { _, _ = io.Copy(node, member); _ = node.Close() }()
		b, before := make([]byte, 64<<10), 0
		for {
			n, err := node.Read(b)
			if err != nil {
				return
			}
			if _, err := member.Write(change(before, b[:n])); err != nil {
				return
			}
			before += n
		}
	}()
	return ln.Addr().String()
}

// TestNothingCanBeChanged passes a session through someone who changes, repeats or leaves out what the switch says once
// it has admitted the member.
func TestNothingCanBeChanged(t *testing.T) {
	for name, tamper := range map[string]func([]byte) []byte{
		"changed":  func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"repeated": func(b []byte) []byte { return append(b, b...) },
		"left out": func([]byte) []byte { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			n := listen(t, Secrets{{Text: secret}})
			var attacked atomic.Bool
			address := relay(t, n, func(_ int, b []byte) []byte {
				if attacked.Swap(false) {
					return tamper(b)
				}
				return b
			})
			s, err := Dial(t.Context(), address, Hello{Ranks: 3, Secret: secret, Timeout: systest.Limit})
			require.NoError(t, err)
			defer func() { _ = s.Close(nil) }()
			p := n.peer(t)
			attacked.Store(true)
			require.NoError(t, p.Ready(someTerms, 0))
			systest.Eventually(t, func() bool { return !attacked.Load() })
			require.NoError(t, p.Drain()) // what comes next shows that something was left out
			require.ErrorContains(t, lost(t, s), "somebody on the path has changed it")
		})
	}
}

// TestProofsCannotBeChanged has somebody on the path change a bit of the greeting or of the proof: no session begins.
func TestProofsCannotBeChanged(t *testing.T) {
	for at := 8; at < 1200; at += 97 {
		n := listen(t, Secrets{{Text: secret}})
		address := relay(t, n, func(before int, b []byte) []byte {
			if i := at - before; i >= 0 && i < len(b) {
				b[i] ^= 1
			}
			return b
		})
		_, err := Dial(t.Context(), address, Hello{Ranks: 3, Secret: secret, Timeout: 5 * time.Second})
		require.Error(t, err, "byte %d", at)
	}
}

// TestImpostor stands where the switch should be, knows another tenant's secret, and is not believed.
func TestImpostor(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	over := make(chan error, 1)
	go func() {
		conn, err := ln.Accept()
		if err == nil {
			ring, _ := Secrets{{Text: "a-secret-of-somebody-else"}}.Ring(1)
			_, err = Accept(conn, ring, systest.Limit)
		}
		over <- err
	}()
	_, err = Dial(t.Context(), ln.Addr().String(), Hello{Ranks: 3, Secret: secret, Timeout: systest.Limit})
	require.ErrorIs(t, err, identity.ErrOther)
	require.Error(t, <-over)
}

func TestReadSecrets(t *testing.T) {
	all,
		err := ReadSecrets(strings.NewReader("# tenants\n\n alice wonderland-and-the-looking-glass " +
		"\nanonymous-but-long-enough\n"))
	require.NoError(t, err)
	require.Equal(t, Secrets{{"alice", "wonderland-and-the-looking-glass"}, {"", "anonymous-but-long-enough"}}, all)
	for text, want := range map[string]string{
		"":                                    "no secret",
		"# nothing\n":                         "no secret",
		"good-enough-to-be-a-secret\na b c\n": "line 2 has 3 words",
		"x shorty\nalice short\n":             "line 1: a secret of 6 bytes",
		"a correct-horse-battery-staple\nb correct-horse-battery-staple\n": "line 2: a secret that is there before",
	} {
		_, err := ReadSecrets(strings.NewReader(text))
		require.ErrorContains(t, err, want)
	}
}
