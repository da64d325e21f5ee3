package rootless

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// Explain says why there is no testbed for an ordinary user here, by the name of what forbids it,
// and what helps.
func Explain(err error) error {
	return explain(err, func(file string) string {
		text, _ := os.ReadFile(file) // a kernel that does not have it forbids nothing by it
		return strings.TrimSpace(string(text))
	})
}

// limits are settings: 0 in one leaves no namespace of its kind to ordinary users.
var limits = []string{"user", "net", "mnt", "pid"}

// explain is Explain with what reads a file of /proc.
func explain(err error, read func(file string) string) error {
	why := "the kernel or what confines this process forbids it"
	help := ""
	sysctl := func(what, name, now, better string) {
		why, help = fmt.Sprintf("%s (%s=%s)", what, name, now),
			fmt.Sprintf("`sudo sysctl %s=%s` allows it; or ", name, better)
	}
	const clone, apparmor = "kernel.unprivileged_userns_clone", "kernel.apparmor_restrict_unprivileged_userns"
	switch {
	case read(sysctlFile(clone)) == "0":
		sysctl("ordinary users may not make user namespaces", clone, "0", "1")
	case read(sysctlFile(apparmor)) == "1":
		sysctl("AppArmor gives ordinary users no rights in their user namespaces", apparmor, "1", "0")
	case filtered(read("/proc/self/status")):
		why = "a seccomp filter, such as a container's, forbids it"
		help = "start the container with `--security-opt seccomp=unconfined --security-opt systempaths=unconfined`; or "
	case errors.Is(err, syscall.EINVAL):
		why = "this kernel has no user namespaces (CONFIG_USER_NS)"
	}
	for _, kind := range limits {
		if name := "user.max_" + kind + "_namespaces"; read(sysctlFile(name)) == "0" {
			sysctl("no namespaces are left to users", name, "0", "10000")
		}
	}
	return fmt.Errorf("a testbed without root needs a user namespace, and %s: %shave root build it, with sudo (%w)", why,
		help, err)
}

// sysctlFile is where a setting is read.
func sysctlFile(name string) string { return "/proc/sys/" + strings.ReplaceAll(name, ".", "/") }

// filtered reads from /proc/self/status whether a seccomp filter is at work.
func filtered(status string) bool {
	for line := range strings.Lines(status) {
		if mode, is := strings.CutPrefix(line, "Seccomp:"); is {
			return strings.TrimSpace(mode) == "2"
		}
	}
	return false
}
