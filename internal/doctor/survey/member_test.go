package survey

import (
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/doctor"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// TestAHostWaitsForOthers as long as they may take: to come, and then to measure without it.
func TestAHostWaitsForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &member{o: &Options{Hosts: maxHosts, Wait: 10 * time.Minute}}
		here, there := net.Pipe()
		obeyed := make(chan error, 1)
		go func() {
			_, err := m.runOrders(t.Context(), here)
			obeyed <- err
		}()
		_, l, err := readHello(there, nil)
		require.NoError(t, err)
		time.Sleep(m.o.Wait) //nolint:forbidigo // in a bubble
		_, err = l.ask(order{Do: doCount}, margin)
		require.NoError(t, err)
		time.Sleep(2*(castTime(maxHosts)+margin) + budget(maxHosts)) //nolint:forbidigo // in a bubble
		require.NoError(t, l.SetDeadline(time.Time{}))
		require.NoError(t, l.out.Encode(order{Do: doEnd}))
		require.NoError(t, <-obeyed)
		require.NoError(t, there.Close())
	})
}

// TestAHostComesAgain when its connection ends before it was told anything.
func TestAHostComesAgain(t *testing.T) {
	at, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	visits := make(chan string, 2)
	go func() {
		defer close(visits)
		for _, orders := range [][]order{nil, {{Do: doEnd}}} {
			conn, err := at.Accept()
			if !assert.NoError(t, err) {
				return
			}
			h, l, err := readHello(conn, nil)
			assert.NoError(t, err)
			visits <- h.Visit
			for _, o := range orders {
				assert.NoError(t, l.out.Encode(o))
			}
			assert.NoError(t, conn.Close())
		}
	}()
	take(t.Context(), t, Options{Meet: at.Addr().String(), Hosts: 2, Wait: systest.Limit}, hostOn(1))
	require.NoError(t, at.Close())
	require.Equal(t, <-visits, <-visits)
}

// TestWhoComesAgainKeepsItsPlace, and another of the same name has one of its own.
func TestWhoComesAgainKeepsItsPlace(t *testing.T) {
	m := &meeting{o: &Options{Hosts: 2}}
	come := func(visit string) net.Conn {
		conn, there := net.Pipe()
		m.enter(&guest{link: newLink(conn), hello: hello{Visit: visit, Place: Place{Name: "host0"}}})
		return there
	}
	come("a")
	first := come("b")
	name := m.guests[1].Place.Name
	come("b")
	require.Len(t, m.guests, 2)
	require.Equal(t, "host0", m.guests[0].Facts.Host)
	require.Equal(t, name, m.guests[1].Facts.Host)
	_, err := first.Write([]byte{0})
	require.Error(t, err, "nobody reads there any more")
}

// TestAHostComesFromItsAddress, which nobody asks for who knows a secret.
func TestAHostComesFromItsAddress(t *testing.T) {
	at, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = at.Close() }()
	for secret, want := range map[bool]string{false: "127.0.0.6", true: "127.0.0.1"} {
		m := &member{
			o: &Options{Meet: at.Addr().String(), Secret: secret}, place: Place{Address: netip.MustParseAddr("127.0.0.6")},
		}
		conn, err := m.come(t.Context())
		require.NoError(t, err)
		assert.Equal(t, want, plain(conn.LocalAddr()).String())
		require.NoError(t, conn.Close())
	}
}

// TestZonesAreEachHostsOwn has a roster as its owners wrote it.
func TestZonesAreEachHostsOwn(t *testing.T) {
	m, err := newMember(&Options{Facts: hostOn(1)})
	require.NoError(t, err)
	defer m.close()
	far := Place{Address: netip.MustParseAddr("fe80::2%elsewhere0"), MTU: 1500, UDP: make([]uint16, flows)}
	_, err = m.open(&order{Do: doOpen, Roster: []Place{m.place, far}, Key: 1})
	require.NoError(t, err)
	require.Equal(t, "fe80::2%lo", m.roster[1].Address.String())
	require.Equal(t, m.place, m.roster[0])
}

func TestMeetFrom(t *testing.T) {
	for meet, want := range map[string]string{
		"host0:4000": "host0:4000", "10.0.0.1:4000": "10.0.0.1:4000", "[fd00::1]:4000": "[fd00::1]:4000",
		"[fe80::1]:4000": "[fe80::1%eth7]:4000", "[fe80::1%elsewhere0]:4000": "[fe80::1%eth7]:4000",
		"[fe80::1%lo]:4000": "[fe80::1%lo]:4000",
	} {
		assert.Equal(t, want, meetFrom(meet, "eth7"), meet)
	}
	assert.Equal(t, "[fe80::1]:4000", meetFrom("[fe80::1]:4000", ""), "there is no interface")
}

// TestUnproven has connections that come from the address that the host claims, and from other addresses.
func TestUnproven(t *testing.T) {
	for name, c := range map[string]struct {
		local, remote, address string
		want                   bool
	}{
		"its own":       {"[::ffff:10.0.0.1]:1", "[::ffff:10.0.0.2]:9", "10.0.0.2", true},
		"of a link":     {"[fe80::1%a]:1", "[fe80::2%a]:9", "fe80::2%b", true},
		"same host":     {"10.0.0.1:1", "10.0.0.1:9", "10.9.0.1", true},
		"loopback":      {"127.0.0.1:1", "127.0.0.1:9", "10.9.0.1", true},
		"another's":     {"10.0.0.1:1", "10.0.0.2:9", "10.0.0.3", false},
		"coordinator's": {"10.0.0.1:1", "10.0.0.2:9", "10.0.0.1", false},
	} {
		conn := ends{local: c.local, remote: c.remote}
		assert.Equal(t, c.want, shows(conn, netip.MustParseAddr(c.address)), name)
	}
	place := Place{Name: "host1", Address: netip.MustParseAddr("10.0.0.3"), UDP: make([]uint16, flows)}
	m := &meeting{o: &Options{}, guests: []*guest{
		{hello: hello{Place: place}, from: netip.MustParseAddr("10.0.0.2")}, {hello: hello{Place: place}},
	}}
	require.Equal(t, m.guests[1:], m.field())
	found := m.unproven()
	require.Len(t, found, 1)
	require.Equal(t, doctor.Warning, found[0].Severity)
	require.Contains(t, found[0].What, "its address is 10.0.0.3, and came from 10.0.0.2")
}

// ends are those of a connection.
type ends struct {
	net.Conn
	local, remote string
}

func (e ends) LocalAddr() net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(e.local)) }

func (e ends) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(e.remote))
}
