package ibverbs

import (
	"os"
	"path/filepath"
	"strings"
)

// sysfs is where the kernel lists RDMA devices.
var sysfs = "/sys/class/infiniband"

// netdevs is where the kernel lists interfaces.
var netdevs = "/sys/class/net"

// overInfiniBand reports whether an interface is an IPoIB one (ARPHRD_INFINIBAND).
func overInfiniBand(name string) bool {
	kind, _ := os.ReadFile(filepath.Join(netdevs, name, "type"))
	return strings.TrimSpace(string(kind)) == "32"
}

// Hardware reports whether this host has an RDMA device that auto may take: none of software, and none of InfiniBand,
// on which nothing here has run yet.
func Hardware() bool {
	all, _ := os.ReadDir(sysfs) // none without the kernel's modules
	for _, d := range all {
		if !Software(d.Name()) && !InfiniBand(d.Name()) {
			return true
		}
	}
	return false
}

// InfiniBand reports whether a device's links are, and not Ethernet.
func InfiniBand(device string) bool {
	ports, _ := filepath.Glob(filepath.Join(sysfs, device, "ports", "*", "link_layer"))
	for _, port := range ports {
		if link, _ := os.ReadFile(port); strings.TrimSpace(string(link)) != "InfiniBand" {
			return false
		}
	}
	return len(ports) > 0
}

// Software reports whether a device is soft-RoCE, which alone says on which netdev it is (rxe_verbs.c: parent), or
// another one that no bus has (siw).
func Software(device string) bool {
	if _, err := os.Stat(filepath.Join(sysfs, device, "parent")); err == nil {
		return true
	}
	_, err := os.Stat(filepath.Join(sysfs, device, "device"))
	return err != nil
}
