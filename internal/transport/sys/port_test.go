package sys

import (
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"golang.org/x/sys/unix"
)

func TestDrawn(t *testing.T) {
	err := Drawn(fmt.Errorf("bind: %w", unix.EADDRINUSE))
	assert.EqualError(t, err, "bind: address already in use: all ports of net.ipv4.ip_local_port_range are taken")
	assert.ErrorIs(t, err, unix.EADDRINUSE)
	assert.Equal(t, io.EOF, Drawn(io.EOF))
	assert.NoError(t, Drawn(nil))
}
