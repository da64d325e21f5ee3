package identity

import (
	"crypto/tls"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

var tenants = []string{"the-secret-of-the-first-tenant", "the-secret-of-the-second-tenant"}

func ring(t *testing.T, secrets ...string) *Ring {
	t.Helper()
	r, err := NewRing(secrets, 1)
	require.NoError(t, err)
	return r
}

// recognized is what Recognize returned.
type recognized struct {
	*Greeting
	secret int
	err    error
}

// recognize has a ring look at a connection meanwhile.
func recognize(r *Ring, conn net.Conn, within time.Duration) chan recognized {
	done := make(chan recognized, 1)
	go func() {
		g, secret, err := r.Recognize(conn, within)
		if err != nil {
			_ = conn.Close()
		}
		done <- recognized{g, secret, err}
	}()
	return done
}

// A ring tells who knows which secret, both ends go on with the same secrets for each direction, and nobody on the path
// reads any: the bytes in clear are the same for all tenants.
func TestRing(t *testing.T) {
	r := ring(t, tenants...)
	for want, secret := range tenants {
		a, b := ends(t)
		heard := &wiretap{Conn: b}
		done := recognize(r, heard, systest.Limit)
		i := of(t, secret)
		g, err := i.Present(a)
		require.NoError(t, err)
		node := <-done
		require.NoError(t, node.err)
		require.Equal(t, want, node.secret)

		out, in, err := g.Keys("slots", 32)
		require.NoError(t, err)
		theirs, mine, err := node.Keys("slots", 32)
		require.NoError(t, err)
		require.Equal(t, out, mine)
		require.Equal(t, in, theirs)
		require.NotEqual(t, out, in)

		on, err := g.Follow()
		require.NoError(t, err)
		there, err := node.Follow()
		require.NoError(t, err)
		go func() { _, _ = on.Write([]byte("what follows")) }()
		follows := make([]byte, 12)
		_, err = io.ReadFull(there, follows)
		require.NoError(t, err)
		require.Equal(t, "what follows", string(follows))
		require.NotContains(t, string(heard.bytes), "follows")
		require.NotContains(t, string(heard.bytes), string(i.public), "a digest of the secret")
		require.NotContains(t, string(heard.bytes), string(i.certificate.Certificate[0][:32]))
		require.Less(t, len(heard.bytes), maxEarly)
	}
}

// Who knows none of its secrets is shown nothing that a ring knows, and is told that it does not know his.
func TestRingAmongStrangers(t *testing.T) {
	r := ring(t, tenants...)
	a, b := ends(t)
	done := recognize(r, b, systest.Limit)
	_, err := of(t, "a-secret-of-somebody-else").Present(a)
	require.ErrorIs(t, err, ErrOther)
	require.ErrorIs(t, (<-done).err, ErrOther)

	a, b = ends(t)
	done = recognize(r, b, systest.Limit)
	config := base(sessions)
	config.Certificates = []tls.Certificate{of(t, NewSecret()).certificate}
	config.VerifyConnection = func(tls.ConnectionState) error {
		t.Error("the ring has shown a certificate to somebody who has proven nothing")
		return nil
	}
	require.Error(t, tls.Server(a, config).Handshake())
	require.Error(t, (<-done).err)
}

// Who stands in the place of a ring proves another tenant's secret, or none, or the right one for something else:
// nobody who presents his takes him for it.
func TestImpostorOfARing(t *testing.T) {
	for name, impostor := range map[string]func(conn net.Conn) error{
		"the other tenant's": func(conn net.Conn) error {
			config := base(sessions)
			config.VerifyConnection = func(tls.ConnectionState) error { return nil }
			config.Certificates = []tls.Certificate{of(t, tenants[1]).certificate}
			return tls.Client(conn, config).Handshake()
		},
		"no certificate": func(conn net.Conn) error { return tls.Client(conn, base(sessions)).Handshake() },
		"a rank": func(conn net.Conn) error {
			_, err := of(t, tenants[0]).Dial(conn)
			return err
		},
		"no protocol": func(conn net.Conn) error {
			config := of(t, tenants[0]).config(sessions)
			config.NextProtos = nil
			return tls.Client(conn, config).Handshake()
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := ends(t)
			done := make(chan struct{})
			go func() {
				defer close(done)
				if impostor(b) == nil { // he is done before his certificate is seen
					_, err := b.Read(make([]byte, 1))
					assert.NoError(t, err, "an alert")
				}
				_ = b.Close()
			}()
			_, err := of(t, tenants[0]).Present(a)
			require.Error(t, err)
			_ = a.Close()
			<-done
		})
	}
}

// Strangers who say nothing, little by little, or a lot are heard within limits, and keep nobody else from his turn.
func TestLimitsOfARing(t *testing.T) {
	r := ring(t, tenants...)
	a, b := ends(t)
	silent := recognize(r, b, systest.Limit)
	_, err := io.ReadFull(a, make([]byte, 50)) // it has its turn, or has had it
	require.NoError(t, err)
	c, d := ends(t)
	done := recognize(r, d, systest.Limit)
	_, err = of(t, tenants[1]).Present(c)
	require.NoError(t, err)
	require.NoError(t, (<-done).err)
	require.Empty(t, silent)
	require.NoError(t, a.Close())
	require.Error(t, (<-silent).err)

	a, b = ends(t)
	slow := recognize(r, b, 300*time.Millisecond)
	for _, next := range append([]byte{22, 3, 3, 16, 0}, make([]byte, 4096)...) { // a record
		if _, err := a.Write([]byte{next}); err != nil {
			break
		}
		systest.Pause(50 * time.Millisecond)
	}
	require.ErrorIs(t, (<-slow).err, os.ErrDeadlineExceeded)

	a, b = ends(t)
	loud := recognize(r, b, systest.Limit)
	go func() { _, _ = io.Copy(io.Discard, a) }()
	record := append([]byte{22, 3, 3, 16, 0, 2, 0, 255, 255}, make([]byte, 4092)...) // of a ServerHello of 64 KiB
	for {
		if _, err := a.Write(record); err != nil {
			break
		}
	}
	require.ErrorIs(t, (<-loud).err, errChatter)
}

// Turns are few: who waits for one has it when another is given back.
func TestTurns(t *testing.T) {
	r := ring(t, tenants...)
	r.turns <- struct{}{}
	a, b := ends(t)
	done := recognize(r, b, systest.Limit)
	presented := make(chan error, 1)
	go func() {
		_, err := of(t, tenants[0]).Present(a)
		presented <- err
	}()
	systest.Nothing(t, done, 50*time.Millisecond, "without a turn")
	<-r.turns
	require.NoError(t, (<-done).err)
	require.NoError(t, <-presented)
	require.Empty(t, r.turns, "all are given back")
}

func TestRingOfBadSecrets(t *testing.T) {
	for _, secrets := range [][]string{{""}, {tenants[0], tenants[1], tenants[0]}} {
		_, err := NewRing(secrets, 1)
		require.Error(t, err)
	}
}

func BenchmarkRecognize(b *testing.B) {
	r, err := NewRing(tenants, 1)
	require.NoError(b, err)
	i, err := New(tenants[1])
	require.NoError(b, err)
	for b.Loop() {
		here, there := net.Pipe()
		done := recognize(r, here, systest.Limit)
		if _, err := i.Present(there); err != nil {
			b.Fatal(err)
		}
		<-done
	}
}
