package survey

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/doctor"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// hostOn is host i of a job whose hosts are addresses of loopback.
func hostOn(i int) doctor.Facts {
	return doctor.Facts{
		Host:   fmt.Sprintf("host%d", i),
		Chosen: doctor.Choice{Name: "lo", Address: fmt.Sprintf("127.0.0.%d", i+1)},
	}
}

// take takes part as a host that does not coordinate.
func take(t testing.TB, o Options, facts doctor.Facts) {
	o.Facts = facts
	r, err := Run(t.Context(), o)
	assert.NoError(t, err, facts.Host)
	assert.Nil(t, r, "the coordinator has it")
}

// coordinate takes part as host0.
func coordinate(t testing.TB, o Options) (*Result, error) {
	o.Facts, o.Coordinate = hostOn(0), true
	return Run(t.Context(), o)
}

// TestSurvey has hosts measure each other over loopback: all passes, and all is measured.
func TestSurvey(t *testing.T) {
	const n = 4
	o := Options{Meet: systest.ReservePort(t).String(), Hosts: n, Token: "secret", Wait: systest.Limit}
	var others sync.WaitGroup
	defer others.Wait()
	for i := 1; i < n; i++ {
		others.Go(func() { take(t, o, hostOn(i)) })
	}
	r, err := coordinate(t, o)
	require.NoError(t, err)
	assert.Empty(t, r.Findings)
	require.Len(t, r.Hosts, n)
	require.Len(t, r.Matrix.Pairs, n*(n-1))
	for i, f := range r.Hosts {
		assert.Equal(t, fmt.Sprintf("host%d", i), f.Host, "by name")
		assert.Positive(t, r.Matrix.Loops[i])
	}
	for _, p := range r.Matrix.Pairs {
		assert.Equal(t, p.Full, p.Multicast, "%+v", p)
		assert.Equal(t, p.Full, p.Unicast, "%+v", p)
		assert.True(t, p.Tried && p.TCP, "%+v", p)
		assert.Equal(t, flows, p.Flows)
		assert.Zero(t, p.Stopped)
		assert.GreaterOrEqual(t, p.Sent, flows*perFlow)
		assert.Positive(t, p.Mbps, "%+v", p)
		assert.Positive(t, p.RTT, "%+v", p)
	}
}

// TestWhoDoesNotComeIsNamed, and a stranger takes nobody's place.
func TestWhoDoesNotComeIsNamed(t *testing.T) {
	o := Options{Meet: systest.ReservePort(t).String(), Hosts: 4, Names: []string{"host0", "host1", "host2", "host3"}, Token: "secret",
		Wait: 2 * time.Second}
	var others sync.WaitGroup
	defer others.Wait()
	others.Go(func() { take(t, o, hostOn(1)) })
	stranger := o
	stranger.Facts, stranger.Token = hostOn(2), "another"
	others.Go(func() {
		_, err := Run(t.Context(), stranger)
		assert.ErrorContains(t, err, "--token")
	})
	others.Go(func() { // as one does whose TCP a firewall drops
		m := &member{o: &o, place: Place{Name: "host3"}}
		ctx, cancel := context.WithTimeout(t.Context(), o.Wait)
		defer cancel()
		m.knock(ctx)
	})
	r, err := coordinate(t, o)
	require.NoError(t, err)
	require.Len(t, r.Findings, 2)
	assert.Equal(t, "unreachable", r.Findings[0].Name)
	assert.Equal(t, []string{"host3"}, r.Findings[0].Hosts)
	assert.Contains(t, r.Findings[0].What, "its UDP reaches 127.0.0.1")
	assert.Equal(t, "host-absent", r.Findings[1].Name)
	assert.Equal(t, []string{"host2"}, r.Findings[1].Hosts)
	assert.Len(t, r.Hosts, 2)
	assert.Len(t, r.Matrix.Pairs, 2, "the rest goes on")
}

// TestWhoDiesInTheMiddleIsNamed has a host that comes, and does not answer.
func TestWhoDiesInTheMiddleIsNamed(t *testing.T) {
	o := Options{Meet: systest.ReservePort(t).String(), Hosts: 3, Token: "secret", Wait: systest.Limit}
	var others sync.WaitGroup
	defer others.Wait()
	others.Go(func() { take(t, o, hostOn(1)) })
	others.Go(func() {
		o := o
		o.Facts = hostOn(2)
		m, err := newMember(&o)
		if !assert.NoError(t, err) {
			return
		}
		defer m.close()
		conn, err := m.come(t.Context())
		if !assert.NoError(t, err) {
			return
		}
		l := newLink(conn)
		assert.NoError(t, l.out.Encode(m.hello()))
		var first order
		assert.NoError(t, l.in.Decode(&first))
		assert.NoError(t, conn.Close())
	})
	r, err := coordinate(t, o)
	require.NoError(t, err)
	require.Len(t, r.Findings, 1)
	assert.Equal(t, "host-lost", r.Findings[0].Name)
	assert.Equal(t, []string{"host2"}, r.Findings[0].Hosts)
	assert.Len(t, r.Hosts, 3, "its facts are known")
	assert.Len(t, r.Matrix.Pairs, 2)
}

// TestAHostWithoutAnAddress still tells what is known of it.
func TestAHostWithoutAnAddress(t *testing.T) {
	o := Options{Meet: systest.ReservePort(t).String(), Hosts: 2, Wait: systest.Limit}
	var others sync.WaitGroup
	defer others.Wait()
	without := doctor.Facts{Host: "host1", Chosen: doctor.Choice{Error: "there is no interface eth9"}}
	others.Go(func() { take(t, o, without) })
	r, err := coordinate(t, o)
	require.NoError(t, err)
	assert.Len(t, r.Hosts, 2)
	assert.Empty(t, r.Matrix.Pairs)
	assert.Empty(t, r.Findings)
}
