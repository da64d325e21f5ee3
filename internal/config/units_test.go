package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"5": 5 * time.Second, "5s": 5 * time.Second, "0.5": time.Second / 2, "500ms": time.Second / 2,
		"1m30s": 90 * time.Second, "0": 0, "-1": -time.Second,
	} {
		d, err := ParseDuration(text)
		require.NoError(t, err, text)
		require.Equal(t, want, d, text)
	}
	for _, bad := range []string{"", " ", "s", "5 s", "1m30", "5x", "1e3", "NaN", "99999999999", "5%"} {
		_, err := ParseDuration(bad)
		require.ErrorContains(t, err, "is no duration: want one such as 500ms", bad)
	}
}

func TestParseShare(t *testing.T) {
	for text, want := range map[string]float64{
		"0": 0, "1": 1, "0.01": 0.01, "1%": 0.01, "0.5 %": 0.005, "100%": 1, "1e-3": 0.001,
	} {
		x, err := ParseShare(text)
		require.NoError(t, err, text)
		require.Equal(t, want, x, text)
	}
	for _, bad := range []string{"", "%", "-0.1", "1.1", "101%", "NaN", "Inf", "1%%", "one"} {
		_, err := ParseShare(bad)
		require.ErrorContains(t, err, "is no share: want a number from 0 to 1", bad)
	}
}

func TestParseRate(t *testing.T) {
	for text, want := range map[string]float64{
		"40gbit": 40e9, "200mbit": 200e6, "2.5gbit": 2.5e9, "100Mbit/s": 100e6, "1 gbit": 1e9, "unlimited": 0,
	} {
		x, err := ParseRate(text)
		require.NoError(t, err, text)
		require.Equal(t, want, x, text)
	}
	for _, bad := range []string{"", "10", "40g", "-1gbit", "1bit", "2000gbit", "NaNgbit"} {
		_, err := ParseRate(bad)
		require.ErrorContains(t, err, "is no rate: want one such as 500mbit", bad)
	}
}
