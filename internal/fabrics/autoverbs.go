package fabrics

import (
	"context"
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
)

// openIfAllHave opens the fabric over RDMA devices if every rank has one that works and multicast by them reaches all
// ranks. If not it returns nil on all ranks alike, and the reason is part of the plan's.
func (p *Opener) openIfAllHave(ctx context.Context, by hostnet.DeviceDatagrams) (*Opened, error) {
	o, prober, err := p.prepare(ctx, by)
	if prober != nil {
		defer prober.Close()
	}
	if err == nil {
		err = by.Try(&o, p.Plan.Column.Size())
	}
	paths, missing, err := p.probeDevices(ctx, &o, prober, err)
	if err != nil {
		return nil, err
	}
	if missing != "" {
		p.Plan = p.Plan.Over(p.Plan.Fabric, p.Plan.Reason+"; no RDMA: "+missing)
		return nil, nil
	}
	p.Plan = p.Plan.Over("verbs", "every rank has an RDMA device, and multicast by them reaches every rank")
	return p.openProbed(ctx, by, &o, paths)
}

// probeDevices returns what the paths carry through RDMA devices. If a rank has no device that works, all ranks get the
// same text with its reason instead; err is this rank's reason, or nil.
func (p *Opener) probeDevices(
	ctx context.Context, o *udp.Options, prober hostnet.Prober, err error,
) (*probed, string, error) {
	mine := ""
	if err != nil {
		mine = err.Error()
	}
	records, err := p.Mesh.Agree(ctx, []byte(mine))
	if err != nil {
		return nil, "", err
	}
	for r := range records {
		if len(records[r]) > 0 {
			return nil, fmt.Sprintf("rank %d: %s", r, records[r]), nil
		}
	}
	paths, err := probePaths(ctx, p.Mesh, p.Plan, prober, packetFor(o), nil)
	if err != nil {
		return nil, "", err
	}
	if len(paths.unheardPairs) > 0 {
		return nil, paths.unheard(), nil
	}
	return paths, "", nil
}
