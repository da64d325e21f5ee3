package examine

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/torch-mcast/torch-mcast/internal/doctor"
)

func TestQuery(t *testing.T) {
	own := netip.MustParseAddr("10.0.0.1")
	with := func(header, igmp int, code byte, from byte) []byte {
		b := make([]byte, header+igmp)
		b[0], b[3], b[9] = 0x40|byte(header/4), byte(header+igmp), 2
		copy(b[12:], []byte{10, 0, 0, from})
		b[header], b[header+1] = igmpQuery, code
		return b
	}
	report := with(24, 8, 0, 9)
	report[24] = igmpReport
	for name, c := range map[string]struct {
		packet []byte
		want   doctor.Querier
	}{
		"version 1": {with(20, 8, 0, 9), doctor.Querier{Heard: true, From: "10.0.0.9", Version: 1}},
		"version 2": {with(24, 8, 100, 9), doctor.Querier{Heard: true, From: "10.0.0.9", Version: 2}},
		"version 3": {with(24, 12, 100, 9), doctor.Querier{Heard: true, From: "10.0.0.9", Version: 3}},
		"our own":   {with(24, 8, 100, 1), doctor.Querier{}},
		"a report":  {report, doctor.Querier{}},
		"cut off":   {with(24, 8, 100, 9)[:30], doctor.Querier{}},
		"empty":     {nil, doctor.Querier{}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, query(c.packet, own)) })
	}
}

func TestIGMPVersion(t *testing.T) {
	const table = "Idx\tDevice    : Count Querier\tGroup    Users Timer\tReporter\n" +
		"1\tlo        :     1      V3\n\t\t\t\t010000E0     1 0:00000000\t\t0\n" +
		"4\teth0      :     1      V2\n\t\t\t\t010000E0     1 0:00000000\t\t0\n"
	assert.Equal(t, "V2", igmpVersion(table, "eth0"))
	assert.Equal(t, "V3", igmpVersion(table, "lo"))
	assert.Empty(t, igmpVersion(table, "eth1"))
	assert.Empty(t, igmpVersion("", "lo"))
}

// TestMessage has the checksum of a message that comes with one add up to nothing (RFC 1071).
func TestMessage(t *testing.T) {
	b := message(igmpLeave, netip.MustParseAddr("239.255.255.254"))
	sum := 0
	for i := 0; i < len(b); i += 2 {
		sum += int(b[i])<<8 | int(b[i+1])
	}
	assert.Equal(t, 0xffff, sum&0xffff+sum>>16)
}
