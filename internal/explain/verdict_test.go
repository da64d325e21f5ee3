package explain

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/monitor"
	"github.com/torch-mcast/torch-mcast/internal/watch"
)

// recorded returns what ranks of a testbed counted while a trouble was planted (internal/lab/testbed/troubles), mostly
// at rank 2. `go test -tags links ./internal/lab/testbed/troubles -run TestRecord -args -record` records anew. What was
// once misjudged is in a file of its own.
func recorded(t *testing.T) map[string]*Job {
	text, err := os.ReadFile("testdata/recorded.ndjson")
	require.NoError(t, err)
	more, err := os.ReadFile("testdata/slow-links.ndjson")
	require.NoError(t, err)
	all := map[string]*Job{}
	for line := range bytes.Lines(append(text, more...)) {
		var r struct {
			Trouble string
			Job     Job
		}
		require.NoError(t, json.Unmarshal(line, &r))
		all[r.Trouble] = &r.Job
	}
	return all
}

// said is the causes of findings, with their ranks.
func said(found []Finding) (all []string) {
	for _, f := range found {
		all = append(all, fmt.Sprint(f.Cause, f.Ranks))
	}
	return all
}

// planted is the verdict that each recorded job must get.
var planted = map[string][]string{
	"healthy": nil, "healthy, busy links": nil, "healthy, through a switch": nil,
	"healthy, back to back": nil, "slow link, back to back": {"slow-link[2]"},
	"slow rank": {"slow-rank[2]"}, "late data loader": {"late-now-and-then[2]"}, "slow link": {"slow-link[2]"},
	"lossy link":     {"lossy-link[2]"},
	"small messages": {"small-messages[]"}, "switch overloaded": {"switch-overloaded[]"},
	"wrong interface":   {"wrong-interface[2]"},
	"slow link, resent": {"slow-link[0]"}, "slow link, sent twice": {"slow-link[2]"}, // 30 Mbit/s; we count 9/10
	"CPU quota": {"cpu-quota[2]"}, "checkpoint traffic": {"other-traffic[2 3]"},
}

func TestRecordedTroubles(t *testing.T) {
	all := recorded(t)
	require.Len(t, all, len(planted))
	for name, want := range planted {
		found := Verdict(all[name])
		require.Equal(t, want, said(found), name)
		for _, f := range found {
			require.NotEmpty(t, f.Figures, name)
			require.NotEmpty(t, f.Remedy, name)
			require.NotEmpty(t, f.Limit, name)
			require.Equal(t, all[name].Group, f.Group)
		}
	}
}

// relabel gives ranks other numbers, and leaves them in their places of the ring.
func relabel(j *Job, to []int) {
	for i := range j.Accounts {
		a := &j.Accounts[i]
		a.Ring = to[:j.Size]
		a.Rank = to[a.Rank]
		for k := range a.Awaited {
			a.Awaited[k].Rank = to[a.Awaited[k].Rank]
		}
	}
	slices.SortFunc(j.Accounts, func(a, b Account) int { return a.Rank - b.Rank })
}

// TestNumbersOfRanksDoNotMatter: with other numbers, the finding names the same ranks.
func TestNumbersOfRanksDoNotMatter(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for range 10 {
		to := random.Perm(4)
		for name, j := range recorded(t) {
			var want []string
			for _, f := range Verdict(j) {
				for i := range f.Ranks {
					f.Ranks[i] = to[f.Ranks[i]]
				}
				slices.Sort(f.Ranks)
				want = append(want, said([]Finding{f})...)
			}
			relabel(j, to)
			require.Equal(t, want, said(Verdict(j)), "%s %v", name, to)
		}
	}
}

// stretch has everything of a rank happen so many times.
func (a *Account) stretch(by float64) {
	long := func(d *time.Duration) { *d = time.Duration(float64(*d) * by) }
	for name, n := range a.Counters {
		a.Counters[name] = uint64(float64(n) * by)
	}
	for i := range a.Awaited {
		w := &a.Awaited[i]
		for _, d := range []*time.Duration{&w.Barrier, &w.Chunks, &w.Credit, &w.Handshake, &w.Begin, &w.Input} {
			long(d)
		}
		w.Repaired = uint64(float64(w.Repaired) * by)
	}
	long(&a.Place.Throttled)
	long(&a.Place.Delayed)
	a.Place.InBytes, a.Place.OutBytes = uint64(float64(a.Place.InBytes)*by), uint64(float64(a.Place.OutBytes)*by)
}

// TestLengthOfTheIntervalDoesNotMatter: figures are of its parts.
func TestLengthOfTheIntervalDoesNotMatter(t *testing.T) {
	for _, by := range []float64{0.7, 3, 100} {
		for name, j := range recorded(t) {
			for i := range j.Accounts {
				j.Accounts[i].stretch(by)
				j.Accounts[i].Span = time.Duration(float64(j.Accounts[i].Span) * by)
			}
			require.Equal(t, planted[name], said(Verdict(j)), "%s, %v times as long", name, by)
		}
	}
}

// TestHealthyJobsDiffer: ranks of healthy jobs differ a little, without a finding.
func TestHealthyJobsDiffer(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 2))
	for range 200 {
		for name, j := range recorded(t) {
			if planted[name] != nil {
				continue
			}
			for i := range j.Accounts {
				j.Accounts[i].stretch(0.95 + 0.1*random.Float64())
				j.Accounts[i].Place.InBytes, j.Accounts[i].Place.OutBytes = 0, 0 // would be more than the link carries
			}
			require.Empty(t, said(Verdict(j)), name)
		}
	}
}

// TestTwoRanksAreNotCompared: neither of two that wait for each other is the odd one.
func TestTwoRanksAreNotCompared(t *testing.T) {
	j := recorded(t)["slow rank"]
	j.Size, j.Accounts = 2, j.Accounts[1:3]
	relabel(j, []int{2, 0, 1, 3})
	require.Empty(t, Verdict(j))
}

// TestWhoIsNotSeenIsNamed if it is waited for, and not judged.
func TestWhoIsNotSeenIsNamed(t *testing.T) {
	for _, name := range []string{"slow rank", "slow link", "slow link, back to back"} {
		j := recorded(t)[name]
		j.Accounts = slices.Delete(j.Accounts, 2, 3)
		require.Equal(t, []string{"awaited-rank[2]"}, said(Verdict(j)), name)
	}
}

// TestWhoDoesNotAnswer: a rank that does not answer is the only finding, and no error of the report.
func TestWhoDoesNotAnswer(t *testing.T) {
	j := recorded(t)["healthy"]
	j.Group, j.Accounts = "abc", slices.Delete(j.Accounts, 2, 3)
	r := Of([]Job{*j}, []error{&watch.SilentError{Group: "abc", Rank: 2}, &watch.SilentError{Group: "gone", Rank: 1},
		errors.New("a host is down")})
	require.Equal(t, []string{"no-answer[2]"}, said(r.Jobs[0].Findings))
	require.Equal(t, "rank 2 has not answered the others: stopped, dead, cut off, or without a core for long",
		r.Jobs[0].Findings[0].What)
	require.Equal(t, []string{"rank 1 of group gone has not answered the others within 1s", "a host is down"}, r.Missing)
	require.NotContains(t, strings.Join(r.Lines(), "\n"), "not looked at")

	j.Silent = []int{2}
	j.Accounts[0].Waiting = []monitor.Waiting{{Operation: "barrier 3", Ranks: []int{2}, For: 12 * time.Second}}
	require.Equal(t, []string{"no-answer[2]", "stalled[2]"}, said(Verdict(j)))
}

// TestFullLinks: where all links are full, it is chance for whom ranks wait most.
func TestFullLinks(t *testing.T) {
	for name, want := range map[string][]string{"healthy, back to back": nil, "healthy": {"slow-link[2]"}} {
		j := recorded(t)[name]
		for i := range j.Accounts {
			if a := &j.Accounts[i]; a.Rank != 2 {
				a.Awaited = append(slices.DeleteFunc(a.Awaited, func(w monitor.Awaited) bool { return w.Rank == 2 }),
					monitor.Awaited{Rank: 2, Chunks: a.Span / 2})
			}
		}
		require.Equal(t, want, said(Verdict(j)), name)
		j.Accounts = slices.DeleteFunc(j.Accounts, func(a Account) bool { return a.Rank == 2 })
		if want != nil {
			want = []string{"awaited-rank[2]"}
		}
		require.Equal(t, want, said(Verdict(j)), name)
	}
}

// TestStalledAtADeadLink: where all wait for each other, the rank with an interface that passes nothing is to blame.
func TestStalledAtADeadLink(t *testing.T) {
	j := recorded(t)["healthy"]
	for i := range j.Accounts {
		w := monitor.Waiting{Operation: "allgather of 8 bytes, number 3", For: 12 * time.Second}
		for r := range j.Size {
			if r != i {
				w.Ranks = append(w.Ranks, r)
			}
		}
		j.Accounts[i].Waiting = []monitor.Waiting{w}
	}
	require.Equal(t, []string{"stalled[]"}, said(Verdict(j)))
	j.Accounts[2].Place.OutBytes = 0
	found := Verdict(j)
	require.Equal(t, []string{"stalled[2]"}, said(found))
	require.Contains(t, found[0].Figures, "nothing at all goes out of the interface of rank 2, or comes in by it")
	for _, change := range []func(a *Account){
		func(a *Account) { a.Fabric = "verbs" }, func(a *Account) { a.Interface = "another" },
		func(a *Account) { a.Place.InBytes = 0 },
	} {
		for i := range j.Accounts {
			change(&j.Accounts[i])
		}
		require.Equal(t, []string{"stalled[]"}, said(Verdict(j)),
			"nobody knows what the interface passes, or it has nothing to do with it")
		j = recorded(t)["healthy"]
		for i := range j.Accounts {
			j.Accounts[i].Waiting = []monitor.Waiting{{
				Operation: "barrier 3", Ranks: []int{(i + 1) % j.Size}, For: 12 * time.Second,
			}}
		}
		j.Accounts[2].Place.OutBytes = 0
	}
}

// TestOtherTraffic: both ends are named, and other traffic does not explain the slow link of a rank that has little of
// that traffic.
func TestOtherTraffic(t *testing.T) {
	j := recorded(t)["healthy"]
	capacity := j.Accounts[0].capacity()
	require.Positive(t, capacity)
	j.Accounts[0].Place.OutBytes += uint64(0.25 * capacity)
	require.Equal(t, []string{"other-traffic[0]"}, said(Verdict(j)))
	j.Accounts[2].Place.InBytes += uint64(0.2 * capacity)
	found := Verdict(j)
	require.Equal(t, []string{"other-traffic[0 2]"}, said(found))
	require.True(t, explains(&Finding{Ranks: []int{0, 2}}, []int{2}))
}

// TestMadeUpTroubles, which no testbed was asked for: each is one thing in a job that is well.
func TestMadeUpTroubles(t *testing.T) {
	waiting := func(ranks ...int) []monitor.Waiting {
		return []monitor.Waiting{{Operation: "allgather of 8 bytes, number 7", Ranks: ranks, For: 12 * time.Second}}
	}
	for want, change := range map[string]func(a []Account){
		"failed[1]":    func(a []Account) { a[1].Failed = "rank 0 is lost" },
		"stalled[3]":   func(a []Account) { a[0].Waiting, a[1].Waiting, a[2].Waiting = waiting(2), waiting(3), waiting(3) },
		"stalled[]":    func(a []Account) { a[0].Waiting, a[1].Waiting = waiting(1), waiting(0) },
		"cpu-quota[0]": func(a []Account) { a[0].Place.Throttled = a[0].Span },
		"cpu-quota[0] cpu-quota[3]": func(a []Account) {
			a[0].Place.Throttled, a[3].Place.Throttled = 2*a[0].Span, a[3].Span
		},
		"lossy-network[]": func(a []Account) {
			for i := range a {
				a[i].Counters["chunks_repaired"] = 200
			}
		},
		"lossy-link[1]":       func(a []Account) { a[1].Counters["chunks_repaired"] = 200 },
		"receiver-overrun[1]": func(a []Account) { a[1].Counters["chunks_repaired"], a[1].Place.Overruns = 200, 50 },
		"lossy-link[3]": func(a []Account) {
			for i := range 3 { // of its shards alone
				a[i].Counters["chunks_repaired"] = 200
				for k := range a[i].Awaited {
					if w := &a[i].Awaited[k]; w.Rank == 3 {
						w.Repaired = 200
					}
				}
			}
		},
		"switch-lost[]": func(a []Account) { a[2].Counters["fallbacks"] = 1 },
		"no-multicast[]": func(a []Account) {
			for i := range a {
				a[i].Allgather = "unicast"
			}
		},
		"cpu-busy[1]": func(a []Account) {
			for i := range a {
				a[i].Counters["reduce_busy_ns"] = uint64(a[i].Span) / 2
			}
			a[1].Counters["reduce_busy_ns"], a[1].Place.Delayed = 0, 2*a[1].Span
			for _, i := range []int{0, 2, 3} {
				a[i].Took += a[i].Span.Seconds() / 3 / a[i].count("reduce_ops")
				for k := range a[i].Awaited {
					if w := &a[i].Awaited[k]; w.Rank == 1 {
						w.Begin += a[i].Span / 3
					}
				}
			}
		},
		"other-traffic[2]": func(a []Account) { // nobody knows what the link carries
			a[2].Place.Links = nil
			a[2].Place.OutBytes = uint64(100e6 * a[2].Span.Seconds())
		},
		"": func(a []Account) { a[1].Counters["chunks_repaired"], a[1].Place.Throttled = 40, a[1].Span/50 },
	} {
		t.Run(want, func(t *testing.T) {
			j := recorded(t)["healthy"]
			change(j.Accounts)
			var all string
			for i, f := range said(Verdict(j)) {
				if i > 0 {
					all += " "
				}
				all += f
			}
			require.Equal(t, want, all)
		})
	}
	require.Empty(t, Verdict(&Job{Size: 4}))
}

// TestSettingsExist: a remedy names settings that there are.
func TestSettingsExist(t *testing.T) {
	var known []string
	for _, v := range config.Variables() {
		known = append(known, v.Name)
	}
	named := 0
	for trouble, j := range recorded(t) {
		for _, f := range Verdict(j) {
			for _, name := range regexp.MustCompile(`MCAST_[A-Z_]+`).FindAllString(f.Remedy+f.What+strings.Join(f.Figures, " "),
				-1) {
				require.Contains(t, known, name, trouble)
				named++
			}
		}
	}
	require.Positive(t, named)
}
