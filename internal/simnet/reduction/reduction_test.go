package reduction

import (
	"testing"

	"github.com/torch-mcast/torch-mcast/internal/simnet/fattree"
	"github.com/torch-mcast/torch-mcast/internal/simnet/network"
)

func small(hosts, radix int) Config {
	return Config{
		Net:   network.Config{Tree: fattree.Config{Hosts: hosts, Radix: radix}, Gbps: 100, Latency: 500},
		Bytes: 64 << 10, Seed: 1,
	}
}

func TestRun(t *testing.T) {
	for _, c := range []Config{small(4, 0), small(16, 4), small(16, 8), small(54, 6)} {
		r, err := c.Run()
		r.Finish = nil
		t.Logf("%+v", r)
		if err != nil {
			t.Error(err)
		}
	}
}
