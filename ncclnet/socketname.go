package main

import (
	"net"
	"strings"
)

// socketInterface returns the one existing interface that NCCL_SOCKET_IFNAME allows; empty: it allows none, or several.
// A list of names begins with ^ if it excludes them, and with = if they are whole names instead of prefixes.
func socketInterface(value string, there []string) (name string) {
	rest, excludes := strings.CutPrefix(value, "^")
	rest, whole := strings.CutPrefix(rest, "=")
	if value == "" || excludes {
		return ""
	}
	for _, have := range there {
		for asked := range strings.SplitSeq(rest, ",") {
			if asked == "" || have != asked && (whole || !strings.HasPrefix(have, asked)) {
				continue
			}
			if name != "" && name != have {
				return ""
			}
			name = have
		}
	}
	return name
}

// upInterfaces returns the names of the interfaces that are up.
func upInterfaces() (names []string) {
	all, _ := net.Interfaces() // none is found then
	for _, ifi := range all {
		if ifi.Flags&net.FlagUp != 0 {
			names = append(names, ifi.Name)
		}
	}
	return names
}
