package main

import (
	"fmt"
	"slices"
	"strings"
)

// moved says where to find what this program once did, and mcast-lab does now; empty: it is none of that.
func moved(args []string) string {
	isAlgorithm := func(arg string) bool { return arg == "--algorithm" || strings.HasPrefix(arg, "--algorithm=") }
	switch {
	case len(args) == 0:
		return ""
	case args[0] == "sim" || args[0] == "testbed":
		return fmt.Sprintf("%s is in mcast-lab now, the program for experiments that `make build` makes: mcast-lab %s", args[0], args[0])
	case args[0] == "bench" && slices.ContainsFunc(args, isAlgorithm):
		return "--algorithm is no flag any more: the ring is in mcast-lab now, the program for experiments that `make build` makes: mcast-lab ring"
	}
	return ""
}
