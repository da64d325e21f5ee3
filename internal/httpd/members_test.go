package httpd_test

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/httpd"
	"github.com/torch-mcast/torch-mcast/internal/transport/identity"
)

// mostServed of those who know the secret are served at a time, and as many wait for that.
const mostServed = 32

// request is all that a client says.
const request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"

// hangUps counts the connections that the other end has closed.
type hangUps struct{ atomic.Int32 }

// dial connects and says something, with the secret of pages or, if that is nil, as a stranger. It reads and drops the
// answer until the connection is closed.
func (h *hangUps) dial(t *testing.T, ln *pipes, pages *identity.Pages, say string) {
	t.Helper()
	conn, err := ln.dial(t.Context(), "", "")
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	if pages != nil {
		conn = tls.Client(conn, pages.Client())
		require.NoError(t, conn.(*tls.Conn).Handshake())
	}
	go func() {
		_, _ = io.Copy(io.Discard, conn)
		h.Add(1)
	}()
	go func() { _, _ = io.WriteString(conn, say) }() // a client that waits is not heard yet
}

// members serves those who know a secret, over pipes, and tells how many are being served. They are until release is
// called.
func members(t *testing.T) (ln *pipes, pages *identity.Pages, inside *atomic.Int32, release, stop func()) {
	t.Helper()
	ln = &pipes{come: make(chan net.Conn), closed: make(chan struct{})}
	pages = pagesOf(t, identity.NewSecret())
	inside = new(atomic.Int32)
	wait := make(chan struct{})
	release = sync.OnceFunc(func() { close(wait) })
	stop = httpd.Serve(ln, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		inside.Add(1)
		<-wait
	}), pages)
	t.Cleanup(func() {
		release()
		// in a bubble; TLS takes 5 s to close where nobody reads; stop would hold a mutex meanwhile, and so the clock
		time.Sleep(time.Minute) //nolint:forbidigo
		stop()
	})
	return ln, pages, inside, release, stop
}

// TestMembersTakeTurns: mostServed clients who know the secret are served at a time, and the others after them.
func TestMembersTakeTurns(t *testing.T) {
	const clients = mostServed + 8
	synctest.Test(t, func(t *testing.T) {
		ln, pages, inside, release, _ := members(t)
		client := httpd.Client(pages)
		client.Transport.(*http.Transport).DialContext = ln.dial
		var all sync.WaitGroup
		for range clients {
			all.Go(func() {
				answer, err := client.Get("https://host")
				if assert.NoError(t, err) {
					assert.NoError(t, answer.Body.Close())
				}
			})
		}
		synctest.Wait() // until nothing goes on: one too many would be there
		require.EqualValues(t, mostServed, inside.Load())
		release()
		all.Wait()
		require.EqualValues(t, clients, inside.Load())
	})
}

// TestMembersWait: the clients who know the secret are limited in number, too, waiting ones included, and wait for a
// limited time.
func TestMembersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln, pages, inside, _, _ := members(t)
		var served, silent, more hangUps
		for range mostServed {
			served.dial(t, ln, pages, request)
		}
		synctest.Wait()
		require.EqualValues(t, mostServed, inside.Load())
		for range mostServed {
			silent.dial(t, ln, pages, "")
		}
		synctest.Wait()
		const beyond = 10
		for range beyond {
			more.dial(t, ln, pages, "")
		}
		synctest.Wait()
		require.EqualValues(t, beyond, more.Load())
		time.Sleep(10*time.Second - time.Nanosecond) //nolint:forbidigo // in a bubble
		synctest.Wait()
		require.Zero(t, silent.Load())
		time.Sleep(time.Nanosecond) //nolint:forbidigo // in a bubble
		synctest.Wait()
		require.EqualValues(t, mostServed, silent.Load())
		more.dial(t, ln, pages, "")
		synctest.Wait()
		require.EqualValues(t, beyond, more.Load(), "it waits where they did")
		require.Zero(t, served.Load())
		require.EqualValues(t, mostServed, inside.Load())
	})
}

// TestStrangersMakeRoom: net/http stays for half a second with a client that has said too much. A client who knows the
// secret waits no longer than the time that the oldest stranger has anyway.
func TestStrangersMakeRoom(t *testing.T) {
	for name, much := range map[string]string{
		"a long header": "GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 8<<10),
		"a long body":   "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ln, pages, inside, _, _ := members(t)
				begun := time.Now()
				var strangers, member hangUps
				for range 63 {
					strangers.dial(t, ln, nil, much)
				}
				synctest.Wait()
				require.Zero(t, strangers.Load())
				member.dial(t, ln, pages, request)
				synctest.Wait()
				require.EqualValues(t, 1, inside.Load())
				require.Equal(t, 100*time.Millisecond, time.Since(begun)) //nolint:forbidigo // in a bubble
			})
		})
	}
}

// TestStopHangsUp: stop closes all connections at once: strangers', served ones, and one that waits to be served.
func TestStopHangsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln, pages, inside, release, stop := members(t)
		var all hangUps
		all.dial(t, ln, nil, "")
		all.dial(t, ln, nil, "GET / HTTP/1.1\r\n")
		for range mostServed + 1 {
			all.dial(t, ln, pages, request)
		}
		synctest.Wait()
		require.EqualValues(t, mostServed, inside.Load())
		require.Zero(t, all.Load())
		begun := time.Now()
		stop()
		synctest.Wait()
		require.EqualValues(t, 2+mostServed+1, all.Load())
		require.Zero(t, time.Since(begun)) //nolint:forbidigo // in a bubble
		release()
	})
}
