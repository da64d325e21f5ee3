package identity

import (
	"crypto/tls"
	"encoding/hex"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/coredump/coredumptest"
	"github.com/torch-mcast/torch-mcast/internal/transport/record"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

func ends(t *testing.T) (a, b net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	a, err = net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	b, err = ln.Accept()
	require.NoError(t, err)
	for _, c := range []net.Conn{a, b} {
		require.NoError(t, c.SetDeadline(systest.Deadline()))
		t.Cleanup(func() { _ = c.Close() })
	}
	return a, b
}

func of(t *testing.T, secret string) *Identity {
	t.Helper()
	i, err := New(secret)
	require.NoError(t, err)
	return i
}

// The greeting is TLS, and records of ours follow. Both ends find the border between the two, however many bytes have
// come by then. Nothing of either is in the clear on the connection.
func TestGreetAndGoOn(t *testing.T) {
	secret := NewSecret()
	a, b := ends(t)
	heard := &wiretap{Conn: b}
	done := make(chan error, 1)
	go func() {
		done <- func() error {
			c, err := of(t, secret).Accept(heard)
			if err != nil {
				return err
			}
			if _, err = io.ReadFull(c, make([]byte, 5)); err != nil {
				return err
			}
			if _, err = c.Write([]byte{1}); err != nil {
				return err
			}
			on, err := c.Follow()
			if err != nil {
				return err
			}
			_, err = on.Write([]byte("what follows")) // at once: it may lie behind the answer already
			return err
		}()
	}()
	c, err := of(t, secret).Dial(a)
	require.NoError(t, err)
	_, err = c.Write([]byte("hello"))
	require.NoError(t, err)
	require.NoError(t, <-done)
	var answer [1]byte
	_, err = io.ReadFull(c, answer[:])
	require.NoError(t, err)
	on, err := c.Follow()
	require.NoError(t, err)
	var follows [12]byte
	_, err = io.ReadFull(on, follows[:])
	require.NoError(t, err)
	require.Equal(t, "what follows", string(follows[:]))
	require.NotEmpty(t, heard.bytes)
	require.NotContains(t, string(heard.bytes), "hello")
	require.NotContains(t, string(heard.bytes), "follows")
}

// wiretap keeps what goes over a connection.
type wiretap struct {
	net.Conn
	bytes []byte
}

func (w *wiretap) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	w.bytes = append(w.bytes, b[:n]...)
	return n, err
}

func (w *wiretap) Write(b []byte) (int, error) {
	w.bytes = append(w.bytes, b...)
	return w.Conn.Write(b)
}

// TestEachKeyIsLeftOut: the keys of an identity, of a greeting, those derived from a greeting, and both ends' of HTTPS.
func TestEachKeyIsLeftOut(t *testing.T) {
	var id *Identity
	coredumptest.By(t, func() { id = of(t, NewSecret()) })
	var g *Greeting
	coredumptest.By(t, func() { g, _ = greet(t, id) })
	p := pagesOf(t, NewSecret())
	server, client := byNames(t, pemOf(t, p), pagesName), byNames(t, pemOf(t, p), pagesName)
	coredumptest.By(t, func() {
		a, b := ends(t)
		done := accept(p, b, systest.Limit)
		require.NoError(t, tls.Client(a, client).Handshake())
		require.NoError(t, (<-done).err)
	})
	coredumptest.By(t, func() {
		a, b := ends(t)
		go func() { _ = tls.Server(b, server).Handshake() }() // an error shows at the client
		require.NoError(t, tls.Client(a, p.Client()).Handshake())
	})
	coredumptest.By(t, func() {
		_, _, err := g.Keys("records", record.SecretSize)
		require.NoError(t, err)
	})
}

// greet returns both ends of a greeting.
func greet(t *testing.T, id *Identity) (dialled, accepted *Greeting) {
	t.Helper()
	a, b := ends(t)
	other := make(chan *Greeting)
	go func() {
		g, _ := id.Accept(b)
		other <- g
	}()
	g, err := id.Dial(a)
	require.NoError(t, err)
	return g, <-other
}

func TestOthersAreRefused(t *testing.T) {
	for name, other := range map[string]func(c net.Conn) error{
		"another secret": func(c net.Conn) error {
			d, err := of(t, NewSecret()).Dial(c)
			if err == nil { // a client of TLS 1.3 is done before the server has seen its certificate
				_, err = d.Read(make([]byte, 1))
			}
			return err
		},
		"no secret": func(c net.Conn) error {
			if _, err := c.Write([]byte("hello, it is only me: 24")); err != nil {
				return err
			}
			_, err := io.Copy(io.Discard, c)
			if err == nil {
				err = io.EOF
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := ends(t)
			refused := make(chan error, 1)
			go func() {
				_, err := of(t, NewSecret()).Accept(b)
				_ = b.Close()
				refused <- err
			}()
			require.Error(t, other(a))
			err := <-refused
			if name == "no secret" {
				require.ErrorIs(t, err, errOther)
				require.Equal(t, "hello", string(Heard(err)))
			} else { // it found that out first, and said so
				require.ErrorIs(t, err, ErrOther)
				require.Nil(t, Heard(err))
			}
		})
	}
}

// Of who has proven nothing no more is read than a proof takes.
func TestLimitOfAGreeting(t *testing.T) {
	a, b := ends(t)
	done := make(chan error, 1)
	go func() {
		_, err := of(t, NewSecret()).Accept(b)
		_ = b.Close()
		done <- err
	}()
	// of a ClientHello of 64 KiB
	record := append([]byte{handshake, majorVersion, 3, 16, 0, 1, 0, 255, 255}, make([]byte, 4092)...)
	for {
		if _, err := a.Write(record); err != nil {
			break
		}
	}
	require.ErrorIs(t, <-done, errChatter)
}

// A listener that is no end of ours, or knows another secret, is not believed; the error tells the two cases apart.
func TestImpostorIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		protocols []string
		want      error
	}{
		"another secret":       {[]string{ranks}, ErrOther},
		"another TLS protocol": {[]string{"http/1.1"}, errOther},
		"any TLS server":       {nil, errOther},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := ends(t)
			config := of(t, NewSecret()).config(ranks)
			config.NextProtos = c.protocols
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = tls.Server(b, config).Handshake()
				_ = b.Close()
			}()
			_, err := of(t, NewSecret()).Dial(a)
			require.ErrorIs(t, err, c.want)
			_ = a.Close()
			<-done
		})
	}
}

func TestNoSecret(t *testing.T) {
	i, err := New("")
	require.NoError(t, err)
	require.Nil(t, i)
	a, _ := net.Pipe()
	for _, as := range []func(net.Conn) (*Greeting, error){i.Dial, i.Accept} {
		c, err := as(a)
		require.NoError(t, err)
		on, err := c.Follow()
		require.NoError(t, err)
		require.Equal(t, a, c.Conn)
		require.Equal(t, a, on)
	}
	name, err := i.Name()
	require.NoError(t, err)
	require.Empty(t, name)
}

// The values are of another implementation of HKDF (RFC 5869): ranks of different builds have to derive the same.
func TestDerive(t *testing.T) {
	i := of(t, "correct-horse-battery-staple")
	key, err := i.Derive("datagrams", []byte("salt"))
	require.NoError(t, err)
	require.Equal(t, "2c53e9d2b94d38cbee46035cdd085dbe9e4df1493ff24c1a479849838705b374", hex.EncodeToString(key))
	name, err := i.Name()
	require.NoError(t, err)
	require.Equal(t, "de65e70ecd645bcf", name)
	other, err := of(t, "correct-horse-battery-stapler").Name()
	require.NoError(t, err)
	require.NotEqual(t, name, other)
}

func TestSecretsDiffer(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		s := NewSecret()
		require.Len(t, s, 2*secretBytes)
		require.False(t, seen[s])
		seen[s] = true
	}
}
