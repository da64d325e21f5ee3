package doctor

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func written(t *testing.T, r JobReport) string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, r.Write(&b))
	return b.String()
}

func TestMatrixIsDrawn(t *testing.T) {
	hosts, m := wellJob(3)
	text := written(t, NewJobReport(hosts, m, nil))
	assert.Contains(t, text, "largest multicast packet, bytes: 9000\n")
	assert.Contains(t, text, "TCP: yes\n")
	assert.Contains(t, text, "multicast that passes at speed, %: 100\n")
	assert.Contains(t, text, "round trip, µs: 100\n")
	assert.NotContains(t, text, "host1", "all is alike")

	every(&m, to(1), func(p *Pair) { p.Multicast, p.Mbps = 0, 24000-100*float64(p.From) })
	text = written(t, NewJobReport(hosts, m, nil))
	assert.Contains(t, text, "fault   host1: host1 hears no other host's multicast\n        why ")
	assert.Contains(t, text, "largest multicast packet, bytes\n"+
		"         host0  host1  host2\n"+
		"  host0      .   none   9000\n"+
		"  host1   9000      .   9000\n"+
		"  host2   9000   none      .\n")
	assert.Contains(t, text, "Mbit/s: 23800 to 24000\n")

	every(&m, all, func(p *Pair) { p.Train = Count{} })
	assert.NotContains(t, written(t, NewJobReport(hosts, m, nil)), "at speed", "no trains were sent")
}

// TestManyHostsAreDrawn has more than a terminal has room for.
func TestManyHostsAreDrawn(t *testing.T) {
	hosts, m := wellJob(40)
	every(&m, from(33), func(p *Pair) { p.Unicast, p.Multicast = 1500, 1500 })
	text := written(t, NewJobReport(hosts, m, nil))
	assert.Contains(t, text, "largest unicast packet, bytes\n  host33  sends 1500  receives 9000\n")
	assert.NotContains(t, text, "host32")
	assert.Less(t, strings.Count(text, "\n"), 30)
	for i := range hosts {
		hosts[i].Host = fmt.Sprintf("a-host-with-a-long-name-%d", i)
	}
	assert.NotEmpty(t, written(t, NewJobReport(hosts, Matrix{}, nil)))
}
