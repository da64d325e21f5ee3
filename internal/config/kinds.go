package config

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// kind is a type of value: its name in the reference, the allowed values, and how
// to read one. parse reports false for anything that allowed does not cover.
type kind[T any] struct {
	name    string
	allowed string
	parse   func(string) (T, bool)
	secret  bool // errors must not repeat a value
}

// orZero widens a kind of number by 0 with a meaning of its own.
func orZero[T int | uint16](k kind[T], meaning string) kind[T] {
	return kind[T]{name: k.name, allowed: "0 (" + meaning + ") or " + k.allowed, parse: func(s string) (T, bool) {
		if s == "0" {
			return 0, true
		}
		return k.parse(s)
	}}
}

// byTable is the value of a threshold of the tuner's that its table sets.
const byTable = -1

// orTable widens a threshold by auto.
func orTable(k kind[int]) kind[int] {
	return kind[int]{name: k.name, allowed: "auto (where it wins: decision 0036), " + k.allowed,
		parse: func(s string) (int, bool) {
			if s == "auto" {
				return byTable, true
			}
			return k.parse(s)
		}}
}

// orEmpty widens a kind by the empty text, which has a meaning of its own.
func orEmpty[T any](k kind[T], meaning string) kind[T] {
	return kind[T]{secret: k.secret, name: k.name, allowed: "empty (" + meaning + ") or " + k.allowed,
		parse: func(s string) (T, bool) {
			if s == "" {
				var zero T
				return zero, true
			}
			return k.parse(s)
		}}
}

func choice(names ...string) kind[string] {
	return kind[string]{name: "choice", allowed: "one of " + strings.Join(names, ", "),
		parse: func(s string) (string, bool) {
			for _, name := range names {
				if s == name {
					return s, true
				}
			}
			return "", false
		}}
}

// onOff is a thing that is done or not.
func onOff() kind[bool] {
	return kind[bool]{name: "flag", allowed: "0 or 1", parse: func(s string) (bool, bool) {
		return s == "1", s == "0" || s == "1"
	}}
}

func text(allowed string) kind[string] {
	return kind[string]{name: "text", allowed: allowed, parse: func(s string) (string, bool) {
		return s, s != "" && !strings.ContainsAny(s, " \t\n/")
	}}
}

// file is a path.
func file() kind[string] {
	return kind[string]{name: "text", allowed: "the path of a file", parse: func(s string) (string, bool) {
		return s, s != "" && !strings.ContainsRune(s, 0)
	}}
}

// mostInterfaces bounds how many MCAST_IFACE names.
const mostInterfaces = 8

// autoOffOrDirectory is for what has a place of its own in the file system.
func autoOffOrDirectory() kind[string] {
	return kind[string]{name: "path",
		allowed: "auto, off or the path of a directory from the root, of up to 64 bytes, such as /run/mcast",
		parse: func(s string) (string, bool) {
			return s, s == "auto" || s == "off" || strings.HasPrefix(s, "/") && len(s) <= 64
		}}
}

// interfaces is a list of names without a gap.
func interfaces() kind[string] {
	name := text("").parse
	return kind[string]{name: "text", allowed: "the name of an interface, such as eth0, or of up to 8, as eth0,eth1",
		parse: func(s string) (string, bool) {
			names := strings.Split(s, ",")
			for i, n := range names {
				if _, ok := name(n); !ok || slices.Contains(names[:i], n) {
					return s, false
				}
			}
			return s, len(names) <= mostInterfaces
		}}
}

// mostTopology bounds what MCAST_TOPOLOGY adds to what ranks tell each other, in bytes.
const mostTopology = 128

// places are the names of parts of the network, each within the one before. Characters that JSON spells in
// several bytes are not in them.
func places() kind[string] {
	return kind[string]{name: "text", allowed: "names separated by slashes, such as row2/rack7, of up to 128 bytes of " +
		"UTF-8 without white space, double quotes, backslashes, <, > and &", parse: func(s string) (string, bool) {
		odd := strings.ContainsFunc(s, func(r rune) bool {
			return !unicode.IsGraphic(r) || unicode.IsSpace(r) || strings.ContainsRune(`"\<>&`, r)
		})
		return s, len(s) <= mostTopology && !odd && utf8.ValidString(s) && !slices.Contains(strings.Split(s, "/"), "")
	}}
}

func number[T int | uint16 | uint64](lo, hi T) kind[T] {
	return kind[T]{name: "number", allowed: fmt.Sprintf("a whole number from %d to %d", lo, hi),
		parse: func(s string) (T, bool) {
			n, err := strconv.ParseUint(s, 10, 64)
			return T(n), err == nil && n >= uint64(lo) && n <= uint64(hi)
		}}
}

func size(lo, hi int) kind[int] {
	return kind[int]{name: "size",
		allowed: fmt.Sprintf("a size from %s to %s, such as 4096, 64K or 1MiB", FormatBytes(lo), FormatBytes(hi)),
		parse: func(s string) (int, bool) {
			n, err := ParseBytes(s)
			return n, err == nil && n >= lo && n <= hi
		}}
}

func fraction(lo, hi float64) kind[float64] {
	return kind[float64]{name: "fraction", allowed: fmt.Sprintf("a share from %g to %g, such as 0.01 or 1%%", lo, hi),
		parse: func(s string) (float64, bool) {
			x, err := ParseShare(s)
			return x, err == nil && x >= lo && x <= hi
		}}
}

func duration(lo, hi time.Duration) kind[time.Duration] {
	return kind[time.Duration]{name: "duration",
		allowed: fmt.Sprintf("a duration from %s to %s, such as 100us, 2ms, 30s, 5m or 30 (seconds)", short(lo), short(hi)),
		parse: func(s string) (time.Duration, bool) {
			d, err := ParseDuration(s)
			return d, err == nil && d >= lo && d <= hi
		}}
}

// multicast leaves out 224.0.0.0/24 and ff02::/16, which other protocols use and routers keep to one link for any TTL,
// and groups that do not leave a host.
func multicast() kind[netip.Addr] {
	return kind[netip.Addr]{name: "address", allowed: "a multicast address from 224.0.1.0 to 239.255.255.255, or of " +
		"ff00::/8 with a scope wider than a link, such as ff15::1:0", parse: func(s string) (netip.Addr, bool) {
		a, err := netip.ParseAddr(s)
		return a, err == nil && a.IsMulticast() && !a.Is4In6() && a.Zone() == "" && !a.IsLinkLocalMulticast() &&
			!a.IsInterfaceLocalMulticast()
	}}
}

func hostPort() kind[string] {
	return kind[string]{name: "host:port", allowed: "host:port with a port from 1 to 65535",
		parse: func(s string) (string, bool) {
			host, port, err := net.SplitHostPort(s)
			if err != nil || host == "" {
				return "", false
			}
			n, err := strconv.ParseUint(port, 10, 16)
			return s, err == nil && n > 0
		}}
}

func hostPorts() kind[string] {
	one := hostPort()
	return kind[string]{name: "list", allowed: one.allowed + ", or several of them, separated by commas",
		parse: func(s string) (string, bool) {
			for _, address := range strings.Split(s, ",") {
				if _, ok := one.parse(address); !ok || strings.ContainsAny(address, " \t\n") {
					return "", false
				}
			}
			return s, true
		}}
}

// password is one that CheckSecret takes, or InStore.
func password() kind[string] {
	return kind[string]{name: "text",
		allowed: "22 to 256 characters without white space, such as `mcast secret` makes, or store (torch_mcast alone)",
		secret:  true, parse: func(s string) (string, bool) {
			return s, s == InStore || CheckSecret(s) == nil
		}}
}

func level() kind[slog.Level] {
	levels := map[string]slog.Level{
		"off": LogOff, "error": slog.LevelError, "warn": slog.LevelWarn, "info": slog.LevelInfo, "debug": slog.LevelDebug,
	}
	return kind[slog.Level]{name: "choice", allowed: "one of off, error, warn, info, debug",
		parse: func(s string) (slog.Level, bool) {
			l, ok := levels[s]
			return l, ok
		}}
}
