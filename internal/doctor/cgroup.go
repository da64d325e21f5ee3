package doctor

import (
	"bufio"
	"bytes"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/torch-mcast/torch-mcast/internal/cgroup"
	"github.com/torch-mcast/torch-mcast/internal/hoststat"
)

// quota returns how many CPUs the tightest control group allows, 0 for no bound, which one that is,
// and in how many of its periods all was used up.
func quota(root fs.FS) (c CPU) {
	folders, second := cgroup.Folders(root, "proc/self", "cpu")
	for _, folder := range folders {
		var share, period float64
		if second {
			words := strings.Fields(text(root, folder+"/cpu.max"))
			if len(words) == 2 {
				share, period = float(words[0]), float(words[1]) // "max" is no number
			}
		} else {
			share = float(text(root, folder+"/cpu.cfs_quota_us"))
			period = float(text(root, folder+"/cpu.cfs_period_us"))
		}
		if share <= 0 || period <= 0 || c.Quota > 0 && share/period >= c.Quota {
			continue
		}
		stat := fields(root, folder+"/cpu.stat")
		c.Quota, c.QuotaBy = share/period, folder
		c.Periods, c.Throttled = stat["nr_periods"], stat["nr_throttled"]
	}
	return c
}

// text returns a file of one line; empty if it cannot be read.
func text(root fs.FS, name string) string {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(b))
}

// float returns a number; 0 if the text is none.
func float(text string) float64 {
	x, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0
	}
	return x
}

// fields returns the numbers of a file with a name and a number a line.
func fields(root fs.FS, name string) map[string]int {
	found := make(map[string]int)
	b, _ := fs.ReadFile(root, name) // none: nothing is found
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), " ")
		if n, err := strconv.Atoi(strings.TrimSpace(value)); err == nil {
			found[key] = n
		}
	}
	return found
}

// threads finds which limit of processes and threads leaves the fewest.
func (l *Limits) threads(root fs.FS) {
	t := hoststat.ThreadsHere(root)
	l.Threads, l.Running, l.ThreadsBy = t.Most, t.Running, t.By
}

// Few is hoststat.Threads.Few.
func (l *Limits) Few() bool {
	return hoststat.Threads{Most: l.Threads, Running: l.Running, By: l.ThreadsBy}.Few()
}

// Threads returns the limits of threads alone, which may run out while the rest is looked at.
func Threads() (l Limits) {
	l.threads(os.DirFS("/"))
	return l
}
