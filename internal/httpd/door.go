package httpd

import (
	"net"
	"sync"

	"github.com/torch-mcast/torch-mcast/internal/transport/acceptor"
	"github.com/torch-mcast/torch-mcast/internal/transport/identity"
)

// door is a listener that tells strangers from those who know the secret: these are served whatever strangers do.
type door struct {
	net.Listener
	pages  *identity.Pages
	places chan struct{} // of those who know the secret
	come   chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func newDoor(ln net.Listener, pages *identity.Pages) *door {
	d := &door{Listener: ln, pages: pages, places: make(chan struct{}, mostConns), come: make(chan net.Conn), closed: make(chan struct{})}
	go acceptor.Serve(ln, acceptor.Patience, d.greet)
	return d
}

// greet hands a connection to the server, and waits until that closes it. Strangers', who are told what is wanted, stay
// among the few that have not greeted.
func (d *door) greet(conn net.Conn, proven func() bool) {
	g := &guest{Conn: conn, gone: make(chan struct{})}
	on, known, err := d.pages.Accept(g, acceptor.Patience)
	if err != nil {
		return
	}
	if known {
		if !proven() {
			return
		}
		defer conn.Close() //nolint:errcheck // the server has, or there is none any more
		select {
		case d.places <- struct{}{}:
			defer func() { <-d.places }()
		case <-d.closed:
			return
		}
	}
	select {
	case d.come <- on:
		<-g.gone
	case <-d.closed:
	}
}

// Accept implements net.Listener.
func (d *door) Accept() (net.Conn, error) {
	select {
	case conn := <-d.come:
		return conn, nil
	case <-d.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (d *door) Close() error {
	d.once.Do(func() { close(d.closed) })
	return d.Listener.Close()
}

// guest is a connection of which it is known when it is closed.
type guest struct {
	net.Conn
	once sync.Once
	gone chan struct{}
}

// Close implements net.Conn.
func (g *guest) Close() error {
	g.once.Do(func() { close(g.gone) })
	return g.Conn.Close()
}
