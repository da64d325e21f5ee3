package testbed

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/lab/testbed/thread"
)

const namespaceRoot = "/run/netns"

var part = regexp.MustCompile(`^(h[0-9]+|n[0-9]+|` + switches + `)$`)

// owns says whether a namespace is of the testbed of that name.
func owns(testbed, namespace string) bool {
	prefix := namespacePrefix + testbed + "-"
	return len(namespace) > len(prefix) && namespace[:len(prefix)] == prefix && part.MatchString(namespace[len(prefix):])
}

// found returns the namespaces of a testbed that exist, whole or half-made.
func found(testbed string) ([]string, error) {
	files, err := os.ReadDir(namespaceRoot)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var all []string
	for _, f := range files {
		if owns(testbed, f.Name()) {
			all = append(all, f.Name())
		}
	}
	return all, nil
}

// onThread calls f on a thread of its own, which ends with f: no other goroutine ever runs in the
// namespace that f puts it in.
func onThread(f func() error) error {
	done := make(chan error)
	thread.Start(func() { done <- f() })
	return <-done
}

// prepareRoot makes the directory of names a mount of its own, as `ip netns add` does where it is
// none: done later, over namespaces that are there, that would keep their files from being removed,
// and them alive. So where there are some already, of others, it is left as it is. The lock is the
// one that ip takes.
func prepareRoot() error {
	if err := os.MkdirAll(namespaceRoot, 0o755); err != nil { // as ip does
		return err
	}
	dir, err := os.Open(namespaceRoot)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", namespaceRoot, err)
	}
	if _, err := dir.Readdirnames(1); !errors.Is(err, io.EOF) {
		return err
	}
	share := func() error { return unix.Mount("", namespaceRoot, "", unix.MS_SHARED|unix.MS_REC, "") }
	err = share()
	if errors.Is(err, unix.EINVAL) { // no mount
		if err = unix.Mount(namespaceRoot, namespaceRoot, "", unix.MS_BIND, ""); err == nil {
			err = share()
		}
	}
	if err != nil {
		return fmt.Errorf("mount %s: %w", namespaceRoot, err)
	}
	return nil
}

// makeNamespace makes a namespace of hosts or of switches, without a detour of bridged packets through
// iptables. A switch's ports have no address.
func (f *family) makeNamespace(name string, switches bool) error {
	settings := append([]setting{{"bridge/bridge-nf-call-iptables", "0"}}, f.settings...)
	if switches {
		settings = append(settings, ipv4.settings...)
	}
	return onThread(func() error {
		ns, err := netns.NewNamed(name)
		if err != nil {
			return fmt.Errorf("make namespace %s: %w", name, err)
		}
		_ = ns.Close() // its file keeps it
		for _, s := range settings {
			if err := s.write(); err != nil && !errors.Is(err, os.ErrNotExist) { // a kernel without it needs no setting
				return fmt.Errorf("namespace %s: %w", name, err)
			}
		}
		return nil
	})
}

// write sets it in the thread's namespace.
func (s setting) write() error { return os.WriteFile("/proc/sys/net/"+s.name, []byte(s.value), 0) }

// deleteNamespace removes a namespace in any state, with everything in it.
func deleteNamespace(name string) error {
	path := filepath.Join(namespaceRoot, name)
	err := unix.Unmount(path, unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // EINVAL: a file, not yet mounted on
		return fmt.Errorf("delete namespace %s: %w", name, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// inside is an open namespace and what talks to its kernel.
type inside struct {
	*netlink.Handle
	ns netns.NsHandle
}

func enter(namespace string) (*inside, error) {
	ns, err := netns.GetFromName(namespace)
	if err != nil {
		return nil, fmt.Errorf("namespace %s: %w", namespace, err)
	}
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		_ = ns.Close()
		return nil, fmt.Errorf("namespace %s: %w", namespace, err)
	}
	return &inside{h, ns}, nil
}

func (i *inside) close() {
	i.Close()
	_ = i.ns.Close()
}
