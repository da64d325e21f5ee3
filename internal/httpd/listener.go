package httpd

import (
	"net"
	"sync"

	"github.com/torch-mcast/torch-mcast/internal/transport/acceptor"
	"github.com/torch-mcast/torch-mcast/internal/transport/identity"
)

// listener tells strangers from those who know the secret: these are served whatever strangers do.
type listener struct {
	net.Listener
	pages  *identity.Pages
	places chan struct{} // of those who know the secret
	come   chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func newListener(ln net.Listener, pages *identity.Pages) *listener {
	l := &listener{Listener: ln, pages: pages, places: make(chan struct{}, mostConns), come: make(chan net.Conn), closed: make(chan struct{})}
	go acceptor.Serve(ln, acceptor.PatienceFor(acceptor.Plain, false), l.greet)
	return l
}

// greet hands a connection to the server, and waits until that closes it. Strangers', who are told what is wanted, stay
// among the few that have not greeted.
func (l *listener) greet(conn net.Conn, proven func() bool) {
	g := &closing{Conn: conn, gone: make(chan struct{})}
	on, known, err := l.pages.Accept(g, acceptor.Plain)
	if err != nil {
		return
	}
	if known {
		if !proven() {
			return
		}
		defer conn.Close() //nolint:errcheck // the server has, or there is none any more
		select {
		case l.places <- struct{}{}:
			defer func() { <-l.places }()
		case <-l.closed:
			return
		}
	}
	select {
	case l.come <- on:
		<-g.gone
	case <-l.closed:
	}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.come:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// closing is a connection of which it is known when it is closed.
type closing struct {
	net.Conn
	once sync.Once
	gone chan struct{}
}

// Close implements net.Conn.
func (c *closing) Close() error {
	c.once.Do(func() { close(c.gone) })
	return c.Conn.Close()
}
