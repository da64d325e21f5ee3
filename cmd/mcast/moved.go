package main

import (
	"slices"
	"strings"

	"github.com/torch-mcast/torch-mcast/internal/cli"
)

// withLab says how to build mcast-lab, which is in checkouts only; a command line for mcast-lab follows.
const withLab = " is in mcast-lab now, which no package has: `make build` in a checkout makes bin/mcast-lab: " +
	"bin/mcast-lab "

// moved says where to find what this program once did, and mcast-lab does now; empty: it is none of that.
func moved(args []string) string {
	if len(args) == 0 {
		return ""
	}
	switch args[0] {
	case "sim", "testbed":
		return args[0] + withLab + cli.Quote(args)
	case "bench":
		rest, algorithm := withoutAlgorithm(args[1:])
		switch algorithm {
		case "mcast":
			return "leave --algorithm out: mcast bench is always ours: mcast bench " + cli.Quote(rest)
		case "ring":
			return "the ring" + withLab + "ring " + cli.Quote(rest)
		}
	}
	return ""
}

// withoutAlgorithm takes --algorithm and its value out of a command line.
func withoutAlgorithm(args []string) (rest []string, value string) {
	const flag = "--algorithm"
	at := slices.IndexFunc(args, func(arg string) bool { return arg == flag || strings.HasPrefix(arg, flag+"=") })
	if at < 0 {
		return args, ""
	}
	end := at + 1
	_, value, joined := strings.Cut(args[at], "=")
	if !joined && end < len(args) {
		value, end = args[end], end+1
	}
	return slices.Concat(args[:at], args[end:]), value
}
