// Package testbed builds hosts as network namespaces, joined by veths to
// bridges: real packets, sockets and kernels, on one machine. A testbed has one
// leaf, or leaves and spines between which multicast travels on trees of static
// group entries; links of hosts have a rate. See docs/how-to/testbed.md.
//
// It needs root, or the namespaces of package rootless. All that it makes is in namespaces that it made, and in
// /run/netns and /run/mcast-testbed; nothing else of the machine is touched.
//
// The words are in docs/reference/glossary.md.
package testbed

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Testbed is one that is up.
type Testbed struct{ layout *layout }

// ErrOther says that a testbed cannot be brought up because of the one that is.
var ErrOther = errors.New("is up with another Spec")

// Up builds a testbed. If one of that name is up with the same Spec, Up mends it: faults end, and if anything is
// missing it is built anew. One with another Spec is an error. progress, which may be nil, hears how much is done, one
// call at a time. On an error, and when ctx ends, Up removes everything that it made.
func Up(ctx context.Context, spec Spec, progress func(done, total int)) (*Testbed, error) {
	if err := spec.Check(); err != nil {
		return nil, err
	}
	if err := NeedRoot(); err != nil {
		return nil, err
	}
	t := &Testbed{newLayout(spec)}
	unlock, err := lock(ctx, t.Name())
	if err != nil {
		return nil, err
	}
	defer unlock()
	if old, exists := load(t.Name()); exists && old.Ready {
		if old.Spec != t.Spec() {
			return nil,
				fmt.Errorf("testbed %s %w: %v, and %v is asked for: take it down first", t.Name(), ErrOther, old.Spec, t.Spec())
		}
		if t.check() == nil {
			return t, t.Heal()
		}
	}
	if err := remove(t.Name()); err != nil { // what an interruption left
		return nil, err
	}
	err = save(saved{Spec: t.Spec()})
	if err == nil {
		err = build(ctx, t.layout, progress)
	}
	if err == nil {
		err = save(saved{Spec: t.Spec(), Ready: true})
	}
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, errors.Join(fmt.Errorf("testbed %s: %w", t.Name(), err), remove(t.Name()))
	}
	return t, nil
}

// Open returns the testbed of that name, which is up. An error says what to do.
func Open(name string) (*Testbed, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if err := NeedRoot(); err != nil {
		return nil, err
	}
	s, exists := load(name)
	switch {
	case !exists:
		return nil, fmt.Errorf("no testbed %s is up: `mcast-lab testbed up --name %s` builds it", name, name)
	case !s.Ready:
		return nil, fmt.Errorf("testbed %s is being built, or was interrupted: `mcast-lab testbed down --name %s` removes it",
			name, name)
	}
	return &Testbed{newLayout(s.Spec)}, nil
}

// Down ends all processes in the testbed of that name and removes it, in any state. That there is none is no error.
func Down(name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	if err := NeedRoot(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), lockTime)
	defer cancel()
	unlock, err := lock(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	return remove(name)
}

// lockTime is longer than it takes to build a testbed.
const lockTime = 3 * time.Minute

// remove removes all parts of a testbed that it can.
func remove(name string) error {
	namespaces, err := found(name)
	errs := []error{err, endResidents(namespaces)}
	for _, n := range namespaces {
		errs = append(errs, deleteNamespace(n))
	}
	errs = append(errs, os.RemoveAll(stateDir(name)))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("testbed %s: %w", name, err)
	}
	return nil
}

// NeedRoot returns an error, in one line, if this process lacks the rights to make a testbed.
func NeedRoot() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	const need = 1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_SYS_ADMIN
	if os.Geteuid() != 0 || data[0].Effective&need != need {
		return errors.New("a testbed needs root (CAP_NET_ADMIN and CAP_SYS_ADMIN): run this with sudo, or without it " +
			"inside `mcast-lab testbed with --hosts P -- COMMAND`, which builds one, runs a command and takes it down")
	}
	return nil
}

// broken says that what should be there is not.
func (t *Testbed) broken(err error) error {
	return fmt.Errorf("testbed %s: %w: `mcast-lab testbed up` with the same flags mends it", t.Name(), err)
}

// check says whether every namespace, port and link exists. A link that is down
// is a fault, and not missing.
func (t *Testbed) check() error {
	_, err := t.Counters()
	return err
}

// Down removes the testbed.
func (t *Testbed) Down() error { return Down(t.layout.spec.Name) }

// Spec returns what the testbed was built from, without zeros that stand for defaults.
func (t *Testbed) Spec() Spec { return t.layout.spec }

// Name returns its name.
func (t *Testbed) Name() string { return t.layout.spec.Name }

// Dir returns the directory for what must be known of a testbed while it is up;
// Down removes it.
func (t *Testbed) Dir() string { return stateDir(t.Name()) }

// Hosts returns all hosts by index.
func (t *Testbed) Hosts() []Host { return slices.Clone(t.layout.hosts) }

// Nodes returns all places for aggregation nodes by index.
func (t *Testbed) Nodes() []Node { return slices.Clone(t.layout.nodes) }

// In calls f on a thread that is in a namespace, such as Host.Namespace. What f
// opens or starts is in it, but for goroutines. The thread ends with f, and with
// the thread what asked the kernel for that (Pdeathsig).
func (t *Testbed) In(namespace string, f func() error) error {
	ns, err := netns.GetFromName(namespace)
	if err != nil {
		return t.broken(fmt.Errorf("namespace %s: %w", namespace, err))
	}
	defer func() { _ = ns.Close() }()
	return onThread(func() error {
		if err := netns.Set(ns); err != nil {
			return fmt.Errorf("enter namespace %s: %w", namespace, err)
		}
		return f()
	})
}

// Processes returns the processes that run in the testbed.
func (t *Testbed) Processes() ([]int, error) { return residents(t.layout.namespaces()) }

// Subnet holds the addresses of all hosts and nodes.
func (t *Testbed) Subnet() netip.Prefix { return t.layout.family.subnet }

// Groups returns the multicast groups that the testbed carries.
func (t *Testbed) Groups() []netip.Addr {
	all := make([]netip.Addr, Groups)
	for g := range all {
		all[g] = t.layout.family.nth(g)
	}
	return all
}
