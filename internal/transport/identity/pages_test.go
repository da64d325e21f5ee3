package identity

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

func pagesOf(t *testing.T, secret string) *Pages {
	t.Helper()
	p, err := NewPages(secret, 1)
	require.NoError(t, err)
	return p
}

func pemOf(t *testing.T, p *Pages) []byte {
	t.Helper()
	text, err := p.PEM()
	require.NoError(t, err)
	return text
}

// byNames is what a program sets that takes the PEM for its own certificate and for the authority of the other end, as
// Prometheus does.
func byNames(t *testing.T, text []byte, name string) *tls.Config {
	t.Helper()
	own, err := tls.X509KeyPair(text, text)
	require.NoError(t, err)
	authorities := x509.NewCertPool()
	require.True(t, authorities.AppendCertsFromPEM(text))
	return &tls.Config{RootCAs: authorities, Certificates: []tls.Certificate{own}, ServerName: name}
}

// accepted is what Accept returned.
type accepted struct {
	net.Conn
	proven bool
	err    error
}

func accept(p *Pages, conn net.Conn, within time.Duration) chan accepted {
	done := make(chan accepted, 1)
	go func() {
		on, proven, err := p.Accept(conn, within)
		if err != nil {
			_ = conn.Close()
		}
		done <- accepted{on, proven, err}
	}()
	return done
}

// TestPages: a client with the certificate has proven the secret, whether it checks names or not, and no other has. The
// server hears its bytes in either case.
func TestPages(t *testing.T) {
	secret := NewSecret()
	p, other := pagesOf(t, secret), pagesOf(t, NewSecret())
	anybody := &tls.Config{InsecureSkipVerify: true}
	rank := anybody.Clone()
	rank.Certificates = []tls.Certificate{of(t, secret).certificate}
	stranger := anybody.Clone()
	stranger.Certificates = other.Client().Certificates
	for name, c := range map[string]struct {
		config *tls.Config // nil: no TLS
		proven bool
	}{
		"the same secret":            {pagesOf(t, secret).Client(), true},
		"its certificate and a name": {byNames(t, pemOf(t, p), pagesName), true},
		"no certificate":             {anybody, false},
		"another secret's":           {stranger, false},
		"that of the secret's ranks": {rank, false},
		"no TLS":                     {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := ends(t)
			done := accept(p, b, systest.Limit)
			if c.config != nil {
				a = tls.Client(a, c.config)
			}
			_, err := io.WriteString(a, "GET /")
			require.NoError(t, err)
			got := <-done
			require.NoError(t, got.err)
			require.Equal(t, c.proven, got.proven)
			var said [5]byte
			_, err = io.ReadFull(got, said[:])
			require.NoError(t, err)
			require.Equal(t, "GET /", string(said[:]))
			go func() { _, _ = got.Write([]byte("401")) }()
			_, err = io.ReadFull(a, said[:3])
			require.NoError(t, err)
			require.Equal(t, "401", string(said[:3]))
			require.Empty(t, p.turns)
		})
	}
	nothing := pagesOf(t, "")
	require.Nil(t, nothing)
	require.True(t, nothing.Proven(nil))
}

// TestImpostorOfPages: who serves others, or has no certificate of ours, is not believed, by names either.
func TestImpostorOfPages(t *testing.T) {
	secret := NewSecret()
	for name, reader := range map[string]*tls.Config{
		"by the key": pagesOf(t, secret).Client(), "by names": byNames(t, pemOf(t, pagesOf(t, secret)), pagesName),
		"by another name": byNames(t, pemOf(t, pagesOf(t, NewSecret())), "torch-mcast.example"),
	} {
		t.Run(name, func(t *testing.T) {
			a, b := ends(t)
			done := accept(pagesOf(t, NewSecret()), b, systest.Limit)
			err := tls.Client(a, reader).Handshake()
			require.Error(t, err)
			if name == "by the key" {
				require.ErrorIs(t, err, ErrOther)
			}
			_ = a.Close()
			require.Error(t, (<-done).err)
		})
	}
}

// TestPagesAreNoRank: their certificate, which is given to others than ranks, is no rank's.
func TestPagesAreNoRank(t *testing.T) {
	secret := NewSecret()
	a, b := ends(t)
	refused := make(chan error, 1)
	go func() {
		_, err := of(t, secret).Accept(b)
		refused <- err
	}()
	config := base(ranks)
	config.Certificates = pagesOf(t, secret).Client().Certificates
	_ = tls.Client(a, config).Handshake() // it may be done before it is seen
	require.ErrorIs(t, <-refused, ErrOther)
}

// TestPagesOfEveryHost: one file serves all hosts, so each makes the same, at any time and by any build.
func TestPagesOfEveryHost(t *testing.T) {
	text := pemOf(t, pagesOf(t, "correct-horse-battery-staple"))
	digest := sha256.Sum256(text)
	require.Equal(t, "d5191f3cc09f58487125766c912d8cd6b3e378ed95ea361d9232c4b3cde4f0f1", hex.EncodeToString(digest[:]))
	require.NotEqual(t, text, pemOf(t, pagesOf(t, "correct-horse-battery-stapler")))
}

// TestLimitsOfPages: strangers who say nothing, or a lot, are heard within limits.
func TestLimitsOfPages(t *testing.T) {
	p := pagesOf(t, NewSecret())
	_, b := ends(t)
	silent := accept(p, b, 100*time.Millisecond)
	c, d := ends(t)
	done := accept(p, d, systest.Limit)
	require.NoError(t, tls.Client(c, p.Client()).Handshake())
	require.NoError(t, (<-done).err)
	require.ErrorIs(t, (<-silent).err, os.ErrDeadlineExceeded)

	a, b := ends(t)
	loud := accept(p, b, systest.Limit)
	// of a ClientHello of 64 KiB
	record := append([]byte{handshake, majorVersion, 3, 16, 0, 1, 0, 255, 255}, make([]byte, 4092)...)
	for {
		if _, err := a.Write(record); err != nil {
			break
		}
	}
	require.ErrorIs(t, (<-loud).err, errChatter)
}
