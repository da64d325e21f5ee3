package httpd

import (
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"

	"github.com/torch-mcast/torch-mcast/internal/transport/identity"
)

const (
	mostConns = 32            // that are served, of all who may ask
	mostKnown = 2 * mostConns // that have proven the secret: those that are served, and as many that wait for it
	// mostHeader is of a request, in bytes; net/http reads 4 KiB more. Together with what TLS takes, 64 strangers have 1 MiB.
	mostHeader = 4 << 10
	// patience is for TLS, and again for a request. On a host that is out of cores, of which metrics are to tell, both take
	// their time. Strangers have a fraction of it where others want their places.
	patience = 5 * time.Second
	// answerTime is how long an answer may take, and how long one waits to be served: as long as Prometheus by default.
	answerTime = 10 * time.Second
)

// HealthPath is what everybody may ask for: whether the process is well is all that it may say.
const HealthPath = "/healthz"

// wanted is what others are told who have not proven the secret.
const wanted = `here are pages for those who know MCAST_SECRET: want HTTPS, with the certificate that "mcast secret --metrics" prints`

// Serve serves on a listener until stop is called. With pages, what is not at HealthPath is for those who prove the secret.
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

// Client asks those who Serve with the same pages, and hosts of the cluster alone, never by HTTP_PROXY: a proxy leads out
// of it.
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
