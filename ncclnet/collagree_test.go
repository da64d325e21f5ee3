package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOffers(t *testing.T) {
	for _, o := range []offer{{}, {switched: true}, {nvswitch: true}, {true, true}} {
		got, err := readOffer(o.String())
		require.NoError(t, err)
		require.Equal(t, o, got)
	}
	_, err := readOffer("switch=maybe")
	require.ErrorContains(t, err, "another version")

	require.Equal(t, agreement{switched: true, alike: true}, agree([]offer{{true, true}, {true, true}}))
	require.Equal(t, agreement{alike: true}, agree([]offer{{}, {}}))
	require.Equal(t, agreement{alike: true}, agree([]offer{{switched: true}, {}}), "one rank without a switch is enough")
	require.Equal(t, agreement{}, agree([]offer{{nvswitch: true}, {}}))
}
