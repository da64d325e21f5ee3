// Package httpd serves pages such as metrics for Prometheus, to everybody or, where there is a secret, to clients who
// prove that they know it. Strangers may ask, too, and cost little: a page is made now and then for all of them,
// connections are few, and none stays.
package httpd

import (
	"bytes"
	"maps"
	"net/http"
	"sync"
	"time"
)

// Page returns a handler that gives all clients the page that another handler has made, and has it make a new one once
// the last is old. The other handler does not see headers and queries of clients: it always answers a plain GET.
func Page(of http.Handler, old time.Duration) http.Handler { return &page{of: of, old: old} }

type page struct {
	of  http.Handler
	old time.Duration

	mu   sync.Mutex // a client that asks while a page is made waits for it
	made time.Time
	last *answer
}

// ServeHTTP implements http.Handler.
func (p *page) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	a := p.now()
	maps.Copy(w.Header(), a.header)
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body.Bytes()) // the client may be gone
}

// now returns a page that is not old.
func (p *page) now() *answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == nil || time.Since(p.made) >= p.old {
		a := &answer{header: http.Header{}, status: http.StatusOK}
		p.of.ServeHTTP(a, &http.Request{Method: http.MethodGet, Header: http.Header{}})
		p.last, p.made = a, time.Now()
	}
	return p.last
}

// answer is what a handler has written; afterwards it is only read.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) { a.status = status }

// Write implements http.ResponseWriter.
func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }
