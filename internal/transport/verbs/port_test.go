package verbs

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/torch-mcast/torch-mcast/internal/transport/ibverbs"
)

// TestSender: RoCE names the sender of a datagram by its IPv4 header; InfiniBand by a GID, from which no rank's address
// is known.
func TestSender(t *testing.T) {
	slot := make([]byte, ibverbs.GRH+4)
	copy(slot[20:], []byte{0x45, 12: 10, 9, 1, 2, 239, 7, 7, 7}) // an IPv4 header
	p := &port{own: [4]byte{10, 9, 1, 1}}
	from, own := p.sender(slot)
	assert.Equal(t, netip.MustParseAddr("10.9.1.2"), from)
	assert.False(t, own)
	assert.False(t, foreign(from, netip.MustParseAddr("10.9.1.2")))
	assert.True(t, foreign(from, netip.MustParseAddr("10.9.1.3")))
	slot[35] = 1
	_, own = p.sender(slot)
	assert.True(t, own)

	clear(slot)
	copy(slot[8:], []byte{0xfe, 0x80, 15: 2}) // a GRH: the sender's GID, and then the group's
	copy(slot[24:], []byte{0xff, 0x12, 15: 9})
	p.gid = [16]byte{0xfe, 0x80, 15: 1}
	from, own = p.sender(slot)
	assert.False(t, own)
	assert.False(t, foreign(from, netip.MustParseAddr("10.9.1.3")), "it cannot be told")
	slot[23] = 1
	_, own = p.sender(slot)
	assert.True(t, own)
}
