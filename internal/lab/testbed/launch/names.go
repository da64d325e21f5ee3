package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
)

// hostNames gives the calling thread, which must be locked, and the processes that it starts an
// /etc/hosts of their own, in a mount namespace of their own. Nothing in a testbed answers for
// names: a process that looks one up, as torch.distributed does for each address, would wait for
// seconds, and gloo would not learn its own address.
func hostNames(tb *testbed.Testbed) error {
	const hosts = "/etc/hosts"
	if _, err := os.Stat(hosts); errors.Is(err, fs.ErrNotExist) {
		return nil // nothing to mount over
	}
	file, err := writeHosts(tb)
	if err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("a mount namespace of its own: %w", err)
	}
	// Mounts from here on do not show elsewhere.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("mounts of its own: %w", err)
	}
	if err := letGo(tb); err != nil {
		return err
	}
	if err := unix.Mount(file, hosts, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s over %s: %w", file, hosts, err)
	}
	return nil
}

// writeHosts returns the path of a file with the names and addresses of all hosts and nodes,
// written once: nothing can be mounted over a mount of a file that was replaced, and mpirun's agent
// does so. An address that an IPv6 socket sees is another one, with a name of its own: the host's
// stands for IPv4 alone.
func writeHosts(tb *testbed.Testbed) (path string, err error) {
	path = filepath.Join(tb.Dir(), "hosts")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	var text strings.Builder
	text.WriteString("127.0.0.1 localhost\n::1 localhost\n")
	add := func(a netip.Addr, name string) {
		fmt.Fprintf(&text, "%v %s\n", a, name)
		if a.Is4() {
			fmt.Fprintf(&text, "::ffff:%v %s.ip6\n", a, name)
		}
	}
	for _, h := range tb.Hosts() {
		add(h.Addr, h.Namespace)
	}
	for _, n := range tb.Nodes() {
		add(n.Addr, n.Namespace)
	}
	file, err := os.CreateTemp(tb.Dir(), "hosts-")
	if err != nil {
		return "", err
	}
	_, err = file.WriteString(text.String())
	err = errors.Join(err, file.Chmod(0o644), file.Close())
	if err == nil {
		err = os.Link(file.Name(), path) // whole, or not at all
	}
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	return path, errors.Join(err, os.Remove(file.Name()))
}

// letGo drops the copies, made with the mount namespace, of what holds other testbeds' network
// namespaces: those would stay alive after their removal.
func letGo(tb *testbed.Testbed) error {
	const named = "/run/netns"
	all, err := os.ReadDir(named)
	if err != nil {
		return err
	}
	own := make(map[string]bool)
	for _, h := range tb.Hosts() {
		own[h.Namespace] = true
	}
	for _, n := range tb.Nodes() {
		own[n.Namespace] = true
	}
	for _, e := range all {
		if !own[e.Name()] {
			_ = unix.Unmount(filepath.Join(named, e.Name()), unix.MNT_DETACH) // or it is no mount
		}
	}
	return nil
}
