package group

import (
	"context"
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
)

// mayHaveDevices reports whether auto may take an RDMA device on this rank's host.
func (o *Options) mayHaveDevices() bool {
	n, has := o.Network.(hostnet.RDMA)
	return has && o.Settings.Fabric == "auto" && n.Hardware()
}

// openIfAllHave opens the fabric over RDMA devices if every rank has one that works and multicast by them reaches all
// ranks. If not it returns nil on all ranks alike, and the reason is part of the plan's.
func openIfAllHave(ctx context.Context, m *mesh.Mesh, l *lobby, a *team.Plan, by hostnet.DeviceDatagrams) (*transports, error) {
	o, prober, err := prepare(ctx, l, a, by)
	if prober != nil {
		defer prober.Close()
	}
	if err == nil {
		err = by.Try(&o, a.Column.Size())
	}
	paths, missing, err := probeDevices(ctx, m, a, &o, prober, err)
	if err != nil {
		return nil, err
	}
	if missing != "" {
		a.TakeFabric(a.Fabric, a.Reason+"; no RDMA: "+missing)
		return nil, nil
	}
	a.TakeFabric("verbs", "every rank has an RDMA device, and multicast by them reaches every rank")
	return openProbed(ctx, l, a, by, &o, paths)
}

// probeDevices returns what the paths carry through RDMA devices. If a rank has no device that works, all ranks get the
// same text with its reason instead; err is this rank's reason, or nil.
func probeDevices(ctx context.Context, m *mesh.Mesh, a *team.Plan, o *udp.Options, prober hostnet.Prober, err error) (*probed, string, error) {
	mine := ""
	if err != nil {
		mine = err.Error()
	}
	records, err := m.Agree(ctx, []byte(mine))
	if err != nil {
		return nil, "", err
	}
	for r := range records {
		if len(records[r]) > 0 {
			return nil, fmt.Sprintf("rank %d: %s", r, records[r]), nil
		}
	}
	paths, err := probePaths(ctx, m, a, prober, packetFor(o), nil)
	if err != nil {
		return nil, "", err
	}
	if len(paths.deaf) > 0 {
		return nil, paths.unheard(), nil
	}
	return paths, "", nil
}
