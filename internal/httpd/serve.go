package httpd

import (
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"
)

const (
	mostConns  = 32       // that are open, of all who ask
	mostHeader = 16 << 10 // bytes of a request
)

// Serve serves on a listener until stop is called.
func Serve(ln net.Listener, handler http.Handler) (stop func()) {
	server := &http.Server{
		Handler: handler, MaxHeaderBytes: mostHeader,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second,
	}
	server.SetKeepAlivesEnabled(false)                                     // a connection that says nothing keeps another one away
	go func() { _ = server.Serve(netutil.LimitListener(ln, mostConns)) }() // until Close
	return func() { _ = server.Close() }
}
