//go:build links

package survey

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// undisturbed repeats a survey if something disturbed it, as the survey judges measurements of milliseconds.
func undisturbed(t *testing.T, survey func(ctx context.Context, t require.TestingT, meet string)) {
	t.Helper()
	systest.Undisturbed(t, func() string {
		return systest.Wrong(func(r require.TestingT) { survey(t.Context(), r, systest.ReservePort(t).String()) })
	})
}

// TestSurvey has hosts measure each other over loopback: all passes, and all is measured.
func TestSurvey(t *testing.T) { undisturbed(t, survey) }

func survey(ctx context.Context, t require.TestingT, meet string) {
	const n = 4
	o := Options{Meet: meet, Hosts: n, Token: "secret", Wait: systest.Limit}
	var others sync.WaitGroup
	defer others.Wait()
	for i := 1; i < n; i++ {
		others.Go(func() { take(ctx, t, o, hostOn(i)) })
	}
	r, err := coordinate(ctx, o)
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
		assert.Positive(t, p.Train.Sent)
		assert.Positive(t, p.TrainUnicast.Sent)
		assert.False(t, p.Limited(), "%+v", p)
	}
}

// TestWhoDoesNotComeIsNamed, and a stranger takes nobody's place.
func TestWhoDoesNotComeIsNamed(t *testing.T) { undisturbed(t, whoDoesNotComeIsNamed) }

func whoDoesNotComeIsNamed(ctx context.Context, t require.TestingT, meet string) {
	o := Options{Meet: meet, Hosts: 4, Names: []string{"host0", "host1", "host2", "host3"}, Token: "secret",
		Wait: 2 * time.Second}
	var others sync.WaitGroup
	defer others.Wait()
	others.Go(func() { take(ctx, t, o, hostOn(1)) })
	stranger := o
	stranger.Facts, stranger.Token = hostOn(2), "another"
	others.Go(func() {
		_, err := Run(ctx, stranger)
		assert.ErrorContains(t, err, "--token")
	})
	others.Go(func() { // as a host does if a firewall drops its TCP
		m := &member{o: &o, place: Place{Name: "host3"}}
		ctx, cancel := context.WithTimeout(ctx, o.Wait) //nolint:forbidigo // it ends then, complete or not
		defer cancel()
		m.knock(ctx)
	})
	r, err := coordinate(ctx, o)
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
func TestWhoDiesInTheMiddleIsNamed(t *testing.T) { undisturbed(t, whoDiesInTheMiddleIsNamed) }

func whoDiesInTheMiddleIsNamed(ctx context.Context, t require.TestingT, meet string) {
	o := Options{Meet: meet, Hosts: 3, Token: "secret", Wait: systest.Limit}
	var others sync.WaitGroup
	defer others.Wait()
	others.Go(func() { take(ctx, t, o, hostOn(1)) })
	others.Go(func() {
		o := o
		o.Facts = hostOn(2)
		m, err := newMember(&o)
		if !assert.NoError(t, err) {
			return
		}
		defer m.close()
		conn, err := m.come(ctx)
		if !assert.NoError(t, err) {
			return
		}
		l := newLink(conn)
		assert.NoError(t, l.out.Encode(m.hello()))
		var first order
		assert.NoError(t, l.in.Decode(&first))
		assert.NoError(t, conn.Close())
	})
	r, err := coordinate(ctx, o)
	require.NoError(t, err)
	require.Len(t, r.Findings, 1)
	assert.Equal(t, "host-lost", r.Findings[0].Name)
	assert.Equal(t, []string{"host2"}, r.Findings[0].Hosts)
	assert.Len(t, r.Hosts, 3, "its facts are known")
	assert.Len(t, r.Matrix.Pairs, 2)
}
