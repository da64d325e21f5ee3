package doctor

import (
	"bufio"
	"bytes"
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"

	"github.com/torch-mcast/torch-mcast/internal/hoststat"
)

// groupFolders returns the folders of the control groups of this process that a controller works
// in, from its own up to the root of what is mounted, and whether they are of version 2.
func groupFolders(
	root fs.FS,
	groups []procfs.Cgroup,
	controller string,
) (folders []string, second bool) {
	const mounted = "sys/fs/cgroup/"
	for _, g := range groups {
		if !slices.Contains(g.Controllers, controller) {
			continue
		}
		for _, mount := range []string{mounted + strings.Join(g.Controllers, ","), mounted + controller} {
			if folders = upward(root, mount, g.Path); folders != nil {
				return folders, false
			}
		}
		return nil, false
	}
	for _, g := range groups {
		for _, mount := range []string{mounted, mounted + "unified"} { // the latter beside version 1
			if _, err := fs.Stat(
				root,
				path.Join(mount, "cgroup.controllers"),
			); g.HierarchyID == 0 &&
				err == nil {
				return upward(root, mount, g.Path), true
			}
		}
	}
	return nil, false
}

// upward returns the folders from a group's to the root of what is mounted. In a container the path
// that the kernel names may be the host's; the root is there all the same.
func upward(root fs.FS, mount, group string) (folders []string) {
	for at := path.Clean("/" + group); ; at = path.Dir(at) {
		folder := path.Join(mount, at)
		if _, err := fs.Stat(root, folder); err == nil {
			folders = append(folders, folder)
		}
		if at == "/" {
			return folders
		}
	}
}

// quota returns how many CPUs the tightest control group allows, 0 for no bound, which one that is,
// and in how many of its periods all was used up.
func quota(root fs.FS, groups []procfs.Cgroup) (c CPU) {
	folders, second := groupFolders(root, groups, "cpu")
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

// memoryLimit adds the tightest control group's bound.
func (m *Memory) memoryLimit(root fs.FS, groups []procfs.Cgroup) {
	folders, second := groupFolders(root, groups, "memory")
	most, used, file := "/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file"
	if second {
		most, used, file = "/memory.max", "/memory.current", "inactive_file"
	}
	for _, folder := range folders {
		limit, err := strconv.ParseUint(text(root, folder+most), 10, 64)
		if err != nil || limit > math.MaxInt/2 { // version 1 writes a number near 2^63 for none
			continue
		}
		// Files read and not used again count as used, yet are given back.
		taken := int(float(text(root, folder+used))) - fields(root, folder+"/memory.stat")[file]
		left := max(0, int(limit)-max(0, taken))
		if m.Limit == 0 || left < m.LimitLeft {
			m.Limit, m.LimitLeft, m.LimitBy = int(limit), left, folder
		}
	}
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
