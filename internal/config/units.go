package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Durations, rates, sizes and shares are read here alone, for variables and for flags: docs/reference/commands.md.

// ParseDuration reads a duration such as 500ms, 1m30s or 5, which is 5 seconds.
func ParseDuration(s string) (time.Duration, error) {
	text := s
	if !strings.ContainsFunc(s, unicode.IsLetter) {
		text += "s"
	}
	d, err := time.ParseDuration(text)
	if err != nil || s == "" {
		return 0, fmt.Errorf("%q is no duration: want one such as 500ms, 30s or 5m, or a number of seconds, such as 5", s)
	}
	return d, nil
}

// short writes 1h for 1h0m0s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// ParseShare reads a part of a whole, from 0 to 1, such as 0.01 or 1%.
func ParseShare(s string) (float64, error) {
	number, percent := strings.CutSuffix(s, "%")
	x, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if percent {
		x /= 100
	}
	if err != nil || !(x >= 0 && x <= 1) { // NaN is in no range
		return 0, fmt.Errorf("%q is no share: want a number from 0 to 1, such as 0.01, or a percentage, such as 1%%", s)
	}
	return x, nil
}

// Bounds of rates, in bits per second.
const (
	minRate = 1e6
	maxRate = 1e12
)

// rateUnits are those of tc.
var rateUnits = []struct {
	name string
	bits float64
}{{"gbit", 1e9}, {"mbit", 1e6}, {"kbit", 1e3}, {"bit", 1}}

// ParseRate reads a rate such as 500mbit, 2.5gbit, 100Mbit/s or unlimited, which is 0, in bits per second.
func ParseRate(s string) (float64, error) {
	lower := strings.TrimSuffix(strings.ToLower(s), "/s")
	if lower == "unlimited" {
		return 0, nil
	}
	for _, u := range rateUnits {
		number, is := strings.CutSuffix(lower, u.name)
		if !is {
			continue
		}
		x, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err == nil && x*u.bits >= minRate && x*u.bits <= maxRate {
			return x * u.bits, nil
		}
		break
	}
	return 0, fmt.Errorf("%q is no rate: want one such as 500mbit or 10gbit, 1mbit to 1000gbit, or unlimited", s)
}

// FormatRate writes a rate in bits per second as ParseRate reads it.
func FormatRate(rate float64) string {
	for _, u := range rateUnits {
		if rate >= u.bits {
			return strconv.FormatFloat(rate/u.bits, 'g', -1, 64) + u.name
		}
	}
	return "unlimited"
}

var sizeUnits = []struct {
	name string
	size int
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// ParseBytes reads a size such as 4096, 64K, 64KiB or 1m. Units are powers of 1024, as nccl-tests has them; KB and the
// like are refused because they mean two things.
func ParseBytes(s string) (int, error) {
	digits, unit := s, 1
	lower := strings.ToLower(s)
	for _, u := range sizeUnits {
		for _, suffix := range []string{u.name, u.name[:1]} {
			if strings.HasSuffix(lower, strings.ToLower(suffix)) {
				digits, unit = s[:len(s)-len(suffix)], u.size
			}
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || n > uint64(math.MaxInt/unit) {
		return 0, fmt.Errorf("%q is not a size: want bytes, such as 4096, or with a unit, such as 64K, 64KiB or 1M", s)
	}
	return int(n) * unit, nil
}

// FormatBytes writes a size in the largest unit that divides it.
func FormatBytes(n int) string {
	for _, u := range sizeUnits {
		if n != 0 && n%u.size == 0 {
			return strconv.Itoa(n/u.size) + u.name
		}
	}
	return strconv.Itoa(n)
}
