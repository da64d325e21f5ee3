package explain

import (
	"fmt"
	"time"
)

// Rules about a rank that others wait for. All compare ranks with each other: a condition that all share, such as a
// slow network, is no rank's fault. They need three ranks: of two that wait for each other neither is odd.
const fewest = 3

// Thresholds, as parts of the interval. In healthy jobs on two cores that others used as well, the time with something
// in flight differed by 0.08 at most between ranks, and the wait for a rank by 0.2; with planted faults by 0.3 to 1.
const (
	lateBy     = 0.12 // less in flight than the others, which wait for it meanwhile
	awaitedBy  = 0.12 // the others wait for it by so much more than for any other rank
	slowBy     = 0.25 // waited for by so much more than any other rank, though it came in time
	throttleBy = 0.05 // kept from running by a quota
	slowLink   = 0.7  // of the speed that links of other ranks have
	full       = 0.95 // of what a link can carry: it is the limit, whichever rank is waited for
	fewOps     = 0.35 // Account.evenness of the ranks that wait: a few operations have all of the waiting
)

// late finds ranks that come late to collectives: they have less in flight than the others, which wait for them.
func late(j *Job, s *sums) (found []Finding) {
	if len(j.Accounts) < fewest {
		return nil
	}
	busy := j.each((*Account).busy)
	for i := range j.Accounts {
		a := &j.Accounts[i]
		others := median(without(busy, i))
		odd, mine := s.odd(a.Rank)
		if others-busy[i] < lateBy || odd < awaitedBy {
			continue
		}
		f := Finding{
			Cause: "slow-rank", Limit: Application, Ranks: []int{a.Rank}, Share: others - busy[i],
			What: fmt.Sprintf("rank %d comes late to its collectives, and all others wait for it: it computes longer than "+
				"they do", a.Rank),
			Figures: []string{
				fmt.Sprintf("it has collectives in flight for %s of the time, the others for %s", percent(busy[i]),
					percent(others)),
				waits(mine, odd),
			},
			Remedy: "look at its work between collectives: a hot or throttled GPU (nvidia-smi -q -d PERFORMANCE), a longer " +
				"batch, work that the others do not have",
		}
		delayed := j.each(func(a *Account) float64 { return a.share(a.Place.Delayed) })
		switch spread := median(without(j.each(a.evenness), i)); {
		case spread < fewOps:
			f.Cause = "late-now-and-then"
			f.What = fmt.Sprintf("rank %d comes very late to a few of its collectives, and in time to the others: it has "+
				"nothing to compute on, or something else to do", a.Rank)
			f.Figures = append(f.Figures, fmt.Sprintf("the others wait for it in %s of their operations", percent(spread)))
			f.Remedy = "look at its data loader (num_workers, prefetch_factor, the disk or the object store), at checkpoints " +
				"and evaluation that it alone does, at garbage collection"
		case delayed[i] > 0.5 && delayed[i] > 3*median(without(delayed, i)):
			f.Cause, f.Limit = "cpu-busy", Host
			f.What = fmt.Sprintf("rank %d comes late since others use the CPUs of its host", a.Rank)
			f.Figures = append(f.Figures, fmt.Sprintf("its threads stood ready to run for %.1f s of a second", delayed[i]))
			f.Remedy = "look for other processes there (top), fewer workers of the data loader, or give the rank cores of its " +
				"own"
		}
		found = append(found, f)
	}
	return found
}

// evenness says over which part of its operations another rank's waiting for this one is spread: 1 if it waits as long
// in each, nearly 0 if in a few of them. Only the other rank waits for this one, and what both meet on the network is
// alike: so the waiting has the difference of their means, and the difference of their variances.
func (a *Account) evenness(other *Account) float64 {
	mean, variance := other.Took-a.Took, max(other.Variance-a.Variance, 0)
	if mean <= 0 || variance == 0 {
		return 1
	}
	return mean * mean / (mean*mean + variance)
}

// slow finds ranks that come in time while bytes from them or to them come late: the others wait for them, or their
// link is slower than the links of the others, and full. A link that holds the others up leaves their links idle: where
// these are full, too, one rank is waited for most by chance.
func slow(j *Job, s *sums) (found []Finding) {
	if len(j.Accounts) < fewest {
		return nil
	}
	busy := j.each((*Account).busy)
	speed := j.each(func(a *Account) float64 { return float64(a.link()) })
	used := j.each((*Account).used)
	for i := range j.Accounts {
		a := &j.Accounts[i]
		odd, mine := s.odd(a.Rank)
		usual := median(without(speed, i))
		slower := speed[i] > 0 && speed[i] <= slowLink*usual
		awaited := odd >= slowBy && median(without(used, i)) < notFull
		narrow := slower && (a.used() >= full || a.used() >= notFull && odd > -awaitedBy)
		if median(without(busy, i))-busy[i] >= lateBy || !awaited && !narrow {
			continue
		}
		sum := func(f func(b *Account) time.Duration) (s float64) {
			for k := range j.Accounts {
				if b := &j.Accounts[k]; k != i {
					s += b.share(f(b))
				}
			}
			return s / float64(len(j.Accounts)-1)
		}
		f := Finding{
			Cause: "slow-link", Limit: Network, Ranks: []int{a.Rank}, Share: odd,
			What: fmt.Sprintf("data to or from rank %d are slow, though the rank comes to its collectives in time: its link, "+
				"or a port on the way", a.Rank),
			Figures: []string{
				waits(mine, odd),
				fmt.Sprintf("of that for its data %.2f s, until it has theirs %.2f s",
					sum(func(b *Account) time.Duration { w := b.of(a.Rank); return w.Chunks + w.Input }),
					sum(func(b *Account) time.Duration { w := b.of(a.Rank); return w.Credit + w.Handshake })),
			},
			Remedy: "on its host: mcast doctor, ethtool " + a.Interface +
				" (speed, errors), cable and transceiver; at the switch the port's speed and errors",
		}
		if slower {
			f.Share = max(f.Share, mine)
			f.Figures = append(f.Figures, fmt.Sprintf("its %s runs at %.0f Mbit/s, the others' at %.0f, and %s of that is used",
				a.Interface, speed[i], usual, percent(a.used())))
		}
		found = append(found, f)
	}
	return found
}

// unseen finds a rank that is waited for and was not looked at. Only the one that is waited for most can be odd.
func unseen(j *Job, s *sums) []Finding {
	rank, longest := -1, 0.0
	for r := range s.of {
		if mean := s.mean(r, -1); mean > longest {
			rank, longest = r, mean
		}
	}
	if rank < 0 || s.from[rank] != nil || j.Size < fewest {
		return nil
	}
	odd, mine := s.odd(rank)
	if odd < slowBy || median(j.each((*Account).used)) >= notFull { // as of slow
		return nil
	}
	return []Finding{{
		Cause: "awaited-rank", Limit: Sender, Ranks: []int{rank}, Share: odd,
		What:    fmt.Sprintf("rank %d is waited for, on a host that was not looked at", rank),
		Figures: []string{waits(mine, odd)},
		Remedy: "run mcast explain with --hosts, or on its host as well: only with its own account can be said whether it " +
			"is late or its link slow",
	}}
}

// quotas finds ranks in a control group that uses up its CPU quota.
func quotas(j *Job) (found []Finding) {
	for i := range j.Accounts {
		a := &j.Accounts[i]
		if share := a.share(a.Place.Throttled); share >= throttleBy {
			found = append(found, Finding{
				Cause: "cpu-quota", Limit: Host, Ranks: []int{a.Rank}, Share: min(share, 1),
				What: fmt.Sprintf("rank %d runs into the CPU quota of its control group, and stands still until the next period",
					a.Rank),
				Figures: []string{fmt.Sprintf("its threads were throttled for %.2f s of a second (cpu.stat)", share)},
				Remedy:  "raise the quota (cpu.max; limits.cpu of the pod, or none: requests.cpu suffices), or use fewer threads",
			})
		}
	}
	return found
}
