package doctor

import (
	"slices"
	"strings"

	"github.com/torch-mcast/torch-mcast/internal/config"
)

// others are variables of others that say over which network they go, or how many cores there are.
var others = []string{"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "NCCL_NET", "NCCL_NET_PLUGIN", "GOMAXPROCS"}

// Variable reports whether a variable of the environment concerns a job, and whether its value is a secret.
func Variable(name string) (concerns, secret bool) {
	secret = slices.ContainsFunc(config.Variables(), func(v config.Variable) bool { return v.Name == name && v.Secret })
	return strings.HasPrefix(name, "MCAST_") || slices.Contains(others, name), secret
}
