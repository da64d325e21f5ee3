package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/torch-mcast/torch-mcast/internal/hoststat"
	"github.com/torch-mcast/torch-mcast/internal/watch"
)

// mostLogs bounds how many logs of a group are read.
const mostLogs = 4

// logs are those of ranks of this host, by group.
type logs map[string][]*hoststat.Log

// openLogs opens them while the ranks are there.
func openLogs(ranks []watch.Rank) logs {
	all := logs{}
	for i := range ranks {
		r := &ranks[i]
		if !r.Here || len(all[r.Group]) == mostLogs {
			continue
		}
		l := hoststat.OpenLog(r.PID)
		if l == nil || slices.ContainsFunc(all[r.Group], func(other *hoststat.Log) bool { return other.Name == l.Name }) {
			l.Close()
			continue
		}
		all[r.Group] = append(all[r.Group], l)
	}
	return all
}

func (l logs) close() {
	for _, of := range l {
		for _, log := range of {
			log.Close()
		}
	}
}

// ended says which groups were there before and are not any more, and what their ranks on this host wrote last.
func (l logs) ended(before, after []watch.Rank) (said []string) {
	gone := map[string]int{}
	for _, r := range before {
		gone[r.Group]++
	}
	for _, r := range after {
		delete(gone, r.Group)
	}
	for _, group := range slices.Sorted(maps.Keys(gone)) {
		text := fmt.Sprintf("group %s: %d ranks were there, and have ended meanwhile", group, gone[group])
		words := ""
		for _, log := range l[group] {
			if word := log.LastLine(); word != "" {
				words += fmt.Sprintf("\n  the last line of %s: %s", log.Name, word)
			}
		}
		if words == "" {
			words = ": their log says why"
		}
		said = append(said, text+words)
	}
	return said
}
