package httpd

import (
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"

	"github.com/torch-mcast/torch-mcast/internal/transport/identity"
)

const (
	mostConns = 32            // connections that are served at once
	mostKnown = 2 * mostConns // clients with the secret: as many may wait as are served
	// mostHeader is the limit of a request's header, in bytes; net/http reads 4 KiB more. With TLS, 64 strangers take 1
	// MiB.
	mostHeader = 4 << 10
	// patience is for TLS, and again for a request. On a host that is out of cores, which metrics are there to show, both
	// take long. Strangers have a fraction of the time where others want their places.
	patience = 5 * time.Second
	// answerTime is how long an answer may take, and how long one waits to be served: as long as Prometheus by default.
	answerTime = 10 * time.Second
)

// HealthPath is what everybody may ask for: whether the process is well is all that it may say.
const HealthPath = "/healthz"

// wanted is what others are told who have not proven the secret.
const wanted = `here are pages for those who know MCAST_SECRET: want HTTPS, with the certificate that "mcast secret --metrics" prints`

// Serve serves on a listener until stop is called. With pages, all but HealthPath is for clients who prove the secret.
func Serve(ln net.Listener, handler http.Handler, pages *identity.Pages) (stop func()) {
	server := &http.Server{
		Handler: guard(handler, pages), MaxHeaderBytes: mostHeader,
		ReadHeaderTimeout: patience, ReadTimeout: patience, WriteTimeout: answerTime,
	}
	server.SetKeepAlivesEnabled(false) // a connection that says nothing keeps another one away
	if pages == nil {
		ln = netutil.LimitListener(ln, mostConns)
	} else {
		ln = newListener(ln, pages)
	}
	go func() { _ = server.Serve(ln) }() // until Close
	return func() { _ = server.Close() }
}

// guard answers those alone who have proven the secret, if there is one.
func guard(handler http.Handler, pages *identity.Pages) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != HealthPath && !pages.Proven(r.TLS) {
			http.Error(w, wanted, http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	})
}

// Client asks servers that Serve with the same pages. They are hosts of the cluster, so it never uses HTTP_PROXY: a
// proxy leads out of the cluster.
func Client(pages *identity.Pages) *http.Client {
	transport := &http.Transport{DisableKeepAlives: true}
	if pages != nil {
		transport.TLSClientConfig = pages.Client()
	}
	return &http.Client{Transport: transport}
}

// Scheme is what URLs begin with to which Client goes.
func Scheme(pages *identity.Pages) string {
	if pages == nil {
		return "http"
	}
	return "https"
}
