package session

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// TestNoRoom: a Sleep after a Flush for which there was no room ends soon, and the next one sleeps.
// A socket that is full is watched until it has room; a congested one is not, as it has.
func TestNoRoom(t *testing.T) {
	for e, watched := range map[unix.Errno]int{unix.EAGAIN: 1, unix.ENOBUFS: 0, unix.ENOMEM: 0} {
		t.Run(e.Error(), func(t *testing.T) {
			s, _ := probed(t, "")
			d, err := s.Datapath(1024)
			require.NoError(t, err)
			defer func() { assert.NoError(t, d.Close()) }()
			h := wire.Slot{Kind: wire.Contribution}
			added, sent := false, -1
			systest.InSandbox(t, e, []uint32{unix.SYS_SENDMSG, unix.SYS_SENDMMSG}, func() {
				added = d.Add(&h, nil)
				sent, err = d.Flush(1)
			})
			require.NoError(t, err)
			require.True(t, added)
			require.Zero(t, sent)
			require.Len(t, d.poller.Ready(), watched)
			d.Sleep(time.Hour)
			require.Empty(t, d.poller.Ready())
			systest.AtLeast(t, 5*time.Millisecond, func() { d.Sleep(5 * time.Millisecond) }) // nothing was refused since
			require.True(t, d.Add(&h, nil))
			sent, err = d.Flush(1)
			require.NoError(t, err)
			require.Equal(t, 1, sent)
		})
	}
}
