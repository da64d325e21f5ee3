package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSocketInterface(t *testing.T) {
	there := []string{"lo", "eth0", "eth1", "eth10", "ib0"}
	for value, want := range map[string]string{
		"": "", "eth1": "", "=eth1": "eth1", "ib": "ib0", "ib0": "ib0", "eth": "", "^eth": "", "^=eth0,lo": "",
		"=eth0,eth1": "",
		"=eth7,eth0": "eth0", "wlan": "", "ib0,ib": "ib0",
	} {
		require.Equal(t, want, socketInterface(value, there), value)
	}
	require.Equal(t, "eth1", socketInterface("eth1", []string{"lo", "eth0", "eth1"}))
}
