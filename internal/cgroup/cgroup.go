// Package cgroup finds the control groups of a process.
package cgroup

import (
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Folders returns the folders below root of the control groups in which a controller works, from the process's own up
// to the one that is mounted, and whether they are of version 2. proc is the process, as in "proc/self".
//
// A limit may be of any of them. In a container the kernel may name the host's path; the group that is mounted is there
// all the same.
func Folders(root fs.FS, proc, controller string) (folders []string, second bool) {
	mounted := mountPoint(root, proc)
	unified := "" // the path of version 2; empty: it is not in use
	text, _ := fs.ReadFile(root, proc+"/cgroup")
	for line := range strings.Lines(string(text)) {
		id, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, ok := strings.Cut(rest, ":")
		switch {
		case !ok:
		case id == "0":
			unified = path.Clean("/" + group)
		case slices.Contains(strings.Split(controllers, ","), controller):
			for _, name := range []string{controllers, controller} {
				if folders = upward(root, path.Join(mounted, name), group); folders != nil {
					return folders, false
				}
			}
			return nil, false
		}
	}
	for _, mount := range []string{mounted, mounted + "/unified"} { // the latter beside version 1
		if _, err := fs.Stat(root, mount+"/cgroup.controllers"); err == nil && unified != "" {
			return upward(root, mount, unified), true
		}
	}
	return nil, false
}

// mountPoint is where control groups are mounted for a process. `ip netns exec` hides them, as it mounts another /sys.
// The processes that started this one may still see them.
func mountPoint(root fs.FS, proc string) string {
	const usual = "sys/fs/cgroup"
	const most = 1000 // ancestors; more are a circle
	at := usual
	for range most {
		if there, _ := fs.ReadDir(root, at); len(there) > 0 {
			return at
		}
		parent := parentOf(root, proc)
		if parent == "" || parent == "0" {
			break
		}
		proc = "proc/" + parent
		at = proc + "/root/" + usual
	}
	return usual
}

// parentOf is who started a process; empty: nobody knows.
func parentOf(root fs.FS, proc string) string {
	text, _ := fs.ReadFile(root, proc+"/status")
	for line := range strings.Lines(string(text)) {
		if parent, ok := strings.CutPrefix(line, "PPid:"); ok {
			return strings.TrimSpace(parent)
		}
	}
	return ""
}

// upward returns the folders that exist, from a group's own up to the mount point.
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
