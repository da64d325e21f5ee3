package httpd_test

import (
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

// TestPage: all who ask within a second get one page, whatever they ask with, with its headers and status.
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
			time.Sleep(999 * time.Millisecond)
			require.Equal(t, fmt.Sprintf("page %d", second+1), ask())
			time.Sleep(time.Millisecond)
		}
		require.Equal(t, 3, made)
	})
}

// TestServe: of those that come all at once 32 are served, the others after them, and no connection stays.
func TestServe(t *testing.T) {
	const clients, most = 80, 32
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var inside, greatest atomic.Int32
	full, release, once := make(chan struct{}), make(chan struct{}), sync.Once{}
	stop := httpd.Serve(ln, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		n := inside.Add(1)
		defer inside.Add(-1)
		for was := greatest.Load(); n > was && !greatest.CompareAndSwap(was, n); was = greatest.Load() {
		}
		if n == most {
			once.Do(func() { close(full) })
		}
		<-release
	}))
	defer stop()
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			client := http.Client{Transport: &http.Transport{}}
			answer, err := client.Get("http://" + ln.Addr().String())
			if assert.NoError(t, err) {
				assert.True(t, answer.Close, "it does not stay")
				assert.NoError(t, answer.Body.Close())
			}
		})
	}
	<-full
	time.Sleep(200 * time.Millisecond) // in which one too many would come
	close(release)
	all.Wait()
	require.EqualValues(t, most, greatest.Load())
}
