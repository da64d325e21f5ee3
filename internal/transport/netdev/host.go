package netdev

import (
	"fmt"
	"os"
	"strings"
)

// HostID names the machine and its network namespace: processes with the same one
// can share memory and talk over loopback.
//
// Virtual machines that were resumed from one snapshot have the same boot id and the same number of the
// namespace; they differ in the address on the default route, or they could not talk to each other.
// Differences between containers, such as /run and /etc/machine-id, do not count: containers that share a
// namespace are on one host.
func HostID() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		name, _ := os.Hostname()
		boot = []byte(name)
	}
	ns, _ := os.Readlink("/proc/thread-self/ns/net")
	at := ""
	if addr := DefaultRouteAddr(Any); addr.IsValid() {
		at = addr.String()
	}
	return strings.TrimSpace(string(boot)) + "/" + strings.Trim(strings.TrimPrefix(ns, "net:"), "[]") + "/" + at
}

// SameHost reports whether two HostIDs are of one host. One that was taken while the host had no
// address, for a link may come up late, goes with any address.
func SameHost(a, b string) bool {
	hostA, addressA := cutLast(a)
	hostB, addressB := cutLast(b)
	return hostA == hostB && (addressA == addressB || addressA == "" || addressB == "")
}

func cutLast(id string) (host, address string) {
	at := strings.LastIndexByte(id, '/')
	return id[:max(at, 0)], id[at+1:]
}

// UserID names the user that this process runs as, and the user namespace where that is its number.
func UserID() string {
	ns, _ := os.Readlink("/proc/thread-self/ns/user")
	return fmt.Sprintf("%d/%s", os.Geteuid(), strings.Trim(strings.TrimPrefix(ns, "user:"), "[]"))
}

// DifferentUsers reports whether two UserIDs are surely of different users: two numbers in one namespace.
// Numbers of several namespaces may stand for one user or not.
func DifferentUsers(a, b string) bool {
	userA, spaceA := cutLast(a)
	userB, spaceB := cutLast(b)
	return userA != userB && spaceA == spaceB && spaceA != ""
}
