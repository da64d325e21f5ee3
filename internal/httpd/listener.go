package httpd

import (
	"net"
	"sync"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/transport/acceptor"
	"github.com/torch-mcast/torch-mcast/internal/transport/identity"
)

// listener tells strangers from clients who know the secret: once they have proven it, strangers cannot keep them from
// being served.
type listener struct {
	net.Listener
	pages  *identity.Pages
	known  chan struct{} // has an entry for each client that has proven the secret
	served chan struct{} // has an entry for each of them that is being served
	come   chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func newListener(ln net.Listener, pages *identity.Pages) *listener {
	l := &listener{
		Listener: ln, pages: pages, known: make(chan struct{}, mostKnown), served: make(chan struct{}, mostConns),
		come: make(chan net.Conn), closed: make(chan struct{}),
	}
	go acceptor.Serve(telling{ln}, acceptor.PatienceFor(patience, false), l.greet)
	return l
}

// greet hands a connection to the server, and waits until it is closed. Connections of strangers, who get an error
// page, stay among the few that acceptor counts as unproven: it may close them, which also ends the wait.
func (l *listener) greet(conn net.Conn, proven func() bool) {
	on, known, err := l.pages.Accept(conn, patience)
	if err != nil {
		return
	}
	if known {
		select {
		case l.known <- struct{}{}:
			defer func() { <-l.known }()
		default:
			return
		}
		if !proven() {
			return
		}
		defer conn.Close() //nolint:errcheck // the server has, or it is for want of a place
		select {
		case l.served <- struct{}{}:
			defer func() { <-l.served }()
		case <-time.After(answerTime):
			return
		case <-l.closed:
			return
		}
	}
	select {
	case l.come <- on:
		<-conn.(*closing).gone
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

// telling is a listener that makes each connection a closing one.
type telling struct{ net.Listener }

// Accept implements net.Listener.
func (t telling) Accept() (net.Conn, error) {
	conn, err := t.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &closing{Conn: conn, gone: make(chan struct{})}, nil
}

// closing is a connection with a channel that Close closes.
type closing struct {
	net.Conn
	once sync.Once
	gone chan struct{}
}

// Close implements net.Conn.
func (c *closing) Close() error {
	defer c.once.Do(func() { close(c.gone) }) // by then its descriptor is free
	return c.Conn.Close()
}
