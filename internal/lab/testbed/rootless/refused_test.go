package rootless

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestExplain(t *testing.T) {
	for name, c := range map[string]struct {
		err   syscall.Errno
		files map[string]string
		want  []string
	}{
		"Debian": {syscall.EPERM, map[string]string{"/proc/sys/kernel/unprivileged_userns_clone": "0"},
			[]string{"kernel.unprivileged_userns_clone=0", "`sudo sysctl kernel.unprivileged_userns_clone=1`"}},
		"Ubuntu": {syscall.EACCES, map[string]string{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1"},
			[]string{"AppArmor", "`sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0`"}},
		"no users": {syscall.ENOSPC,
			map[string]string{"/proc/sys/user/max_user_namespaces": "0", "/proc/self/status": "Seccomp:\t2\n"},
			[]string{"user.max_user_namespaces=0", "`sudo sysctl user.max_user_namespaces=10000`"}},
		"no networks": {syscall.ENOSPC,
			map[string]string{"/proc/sys/user/max_user_namespaces": "9", "/proc/sys/user/max_net_namespaces": "0"},
			[]string{"user.max_net_namespaces=0"}},
		"container": {syscall.EPERM, map[string]string{"/proc/self/status": "Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n"},
			[]string{"a seccomp filter", "--security-opt seccomp=unconfined"}},
		"kernel": {syscall.EINVAL, nil, []string{"CONFIG_USER_NS"}},
		"unknown": {syscall.EPERM, map[string]string{"/proc/self/status": "Seccomp:\t0\n"},
			[]string{"the kernel or what confines this process"}},
	} {
		err := explain(c.err, func(file string) string { return c.files[file] })
		require.ErrorIs(t, err, c.err, name)
		for _, want := range append(c.want, "with sudo", c.err.Error()) {
			require.ErrorContains(t, err, want, name)
		}
	}
}
