package httpd_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/httpd"
)

// TestPage: all requests within a second get one page, with its headers and status; the request makes no difference.
func TestPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := 0
		p := httpd.Page(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			made++
			assert.Empty(t, r.Header)
			assert.Nil(t, r.URL)
			w.Header().Set("Content-Type", "text/x-test")
			w.WriteHeader(http.StatusTeapot)
			_, err := fmt.Fprintf(w, "page %d", made)
			assert.NoError(t, err)
		}), time.Second)
		ask := func() string {
			r := httptest.NewRequest(http.MethodGet, "/metrics?x=y", nil)
			r.Header.Set("Accept-Encoding", "gzip")
			w := httptest.NewRecorder()
			p.ServeHTTP(w, r)
			assert.Equal(t, http.StatusTeapot, w.Code)
			assert.Equal(t, "text/x-test", w.Header().Get("Content-Type"))
			return w.Body.String()
		}
		for second := range 3 {
			var all sync.WaitGroup
			for range 100 {
				all.Go(func() { assert.Equal(t, fmt.Sprintf("page %d", second+1), ask()) })
			}
			all.Wait()
			time.Sleep(999 * time.Millisecond) //nolint:forbidigo // in a bubble
			require.Equal(t, fmt.Sprintf("page %d", second+1), ask())
			time.Sleep(time.Millisecond) //nolint:forbidigo // in a bubble
		}
		require.Equal(t, 3, made)
	})
}

// TestServe: of many clients at once 32 are served, the others after them, and no connection stays.
func TestServe(t *testing.T) {
	const clients, most = 80, 32
	synctest.Test(t, func(t *testing.T) {
		ln := &pipes{come: make(chan net.Conn), closed: make(chan struct{})}
		var inside atomic.Int32
		release := make(chan struct{})
		stop := httpd.Serve(ln, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			inside.Add(1)
			<-release
		}), nil)
		defer stop()
		var all sync.WaitGroup
		for range clients {
			all.Go(func() {
				client := http.Client{Transport: &http.Transport{DialContext: ln.dial}}
				answer, err := client.Get("http://host")
				if assert.NoError(t, err) {
					assert.True(t, answer.Close, "it does not stay")
					assert.NoError(t, answer.Body.Close())
				}
			})
		}
		synctest.Wait() // until nothing goes on: one too many would be there
		assert.EqualValues(t, most, ln.accepted.Load())
		assert.EqualValues(t, most, inside.Load())
		close(release)
		all.Wait()
		require.EqualValues(t, clients, inside.Load())
	})
}

// pipes is a listener for a bubble of synctest, which does not wait for sockets. It counts whom it accepts.
type pipes struct {
	come     chan net.Conn
	accepted atomic.Int32
	closed   chan struct{}
	once     sync.Once
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.come <- server:
		return client, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.come:
		p.accepted.Add(1)
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }
