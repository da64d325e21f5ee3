package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
)

// settingRules are about the environment.
var settingRules = []rule{
	{"setting-not-allowed", func(f *Facts) []Finding {
		return one(f.Settings.Bad != "", Fault, "environment", f.Settings.Bad,
			"each rank that starts with it ends at once with this error", "mcast env lists the allowed values")
	}},
	{"setting-unknown", unknownSettings},
	onLink("chunk-too-large", chunkTooLarge),
	{"receive-buffer-cut", receiveBufferCut},
	{"loss-on-purpose", func(f *Facts) []Finding {
		loss := f.Settings.Set["MCAST_LOSS"]
		return one(loss != "" && loss != "0", Warning, "MCAST_LOSS",
			fmt.Sprintf("MCAST_LOSS=%s throws received datagrams away", loss),
			"it is for tests: chunks thrown away come by repair", "unset MCAST_LOSS")
	}},
	{"ttl-of-zero", func(f *Facts) []Finding {
		return one(f.Settings.Set["MCAST_TTL"] == "0" && !f.onLoopback(), Fault, "MCAST_TTL",
			"MCAST_TTL=0 keeps multicast on this host", "ranks of other hosts hear nothing", "unset MCAST_TTL")
	}},
	{"gloo-interface", glooInterface},
	{"nccl-interface", ncclInterface},
}

func unknownSettings(f *Facts) (found []Finding) {
	for _, warning := range f.Settings.Unknown {
		name, _, _ := strings.Cut(warning, " ")
		found = append(found, Finding{Severity: Warning, Subject: name, What: warning,
			Why:    "most such names are typos: the library goes on with its defaults",
			Remedy: "mcast env lists the names; unset " + name})
	}
	return found
}

func chunkTooLarge(f *Facts, l *Link) []Finding {
	chunk, err := config.ParseBytes(f.Settings.Set["MCAST_CHUNK"])
	if err != nil || chunk == 0 {
		return nil
	}
	return one(udp.PacketFor(f.Family(), chunk) > l.MTU, Fault, "MCAST_CHUNK",
		fmt.Sprintf("MCAST_CHUNK=%d makes packets of %d bytes, %s carries %d", chunk,
			udp.PacketFor(f.Family(), chunk), l.Name, l.MTU),
		"no rank can join with it", "unset MCAST_CHUNK: then it is fitted to what the paths carry")
}

func receiveBufferCut(f *Facts) []Finding {
	asked, err := config.ParseBytes(f.Settings.Set["MCAST_RCVBUF"])
	if err != nil || f.Net.RmemMax == 0 {
		return nil
	}
	return one(asked > f.Net.RmemMax, Warning, "MCAST_RCVBUF",
		fmt.Sprintf("MCAST_RCVBUF=%s is more than net.core.rmem_max=%d allows", ByteCount(asked), f.Net.RmemMax),
		"the kernel cuts it without a word, and the window with it",
		fmt.Sprintf("sudo sysctl -w net.core.rmem_max=%d", asked))
}

// glooInterface finds an embedded gloo that is told another interface; by itself it takes the address
// that this library has.
func glooInterface(f *Facts) []Finding {
	names := f.Settings.Set["GLOO_SOCKET_IFNAME"]
	if names == "" || f.onLoopback() || f.Chosen.Error != "" {
		return nil
	}
	return one(!slices.Contains(strings.Split(names, ","), f.Chosen.Name), Warning, "GLOO_SOCKET_IFNAME",
		fmt.Sprintf("gloo takes %s, this library %s", names, f.Chosen.Name),
		"the operations that gloo does go by another network, perhaps a slow one, or none",
		"unset GLOO_SOCKET_IFNAME, or export GLOO_SOCKET_IFNAME="+f.Chosen.Name)
}

// ncclInterface compares with what NCCL's own sockets take.
func ncclInterface(f *Facts) []Finding {
	names := f.Settings.Set["NCCL_SOCKET_IFNAME"]
	if names == "" || f.onLoopback() {
		return nil
	}
	list, except := strings.CutPrefix(names, "^")
	list, exact := strings.CutPrefix(list, "=")
	listed := slices.ContainsFunc(strings.Split(list, ","), func(n string) bool {
		return n == f.Chosen.Name || !exact && strings.HasPrefix(f.Chosen.Name, n)
	})
	return one(listed == except, Warning, "NCCL_SOCKET_IFNAME",
		fmt.Sprintf("NCCL_SOCKET_IFNAME=%s, this library takes %s", names, f.Chosen.Name),
		"NCCL's bootstrap and its own transport would go by another network than the plugin",
		"export NCCL_SOCKET_IFNAME="+f.Chosen.Name+", or MCAST_IFACE to the one that is meant")
}
