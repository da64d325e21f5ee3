package examine

import (
	"context"
	"os"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/torch-mcast/torch-mcast/internal/doctor"
	"github.com/torch-mcast/torch-mcast/internal/nccl/check"
	"github.com/torch-mcast/torch-mcast/internal/nccl/machine"
)

// devices looks for GPUs and RDMA.
func (e *examination) devices() {
	d := &e.Devices
	if m, err := machine.Read("/"); err == nil {
		for _, gpu := range m.GPUs {
			d.GPUs = append(d.GPUs, gpu.BusID)
		}
	} else {
		e.unseen("GPUs", err.Error(), "")
	}
	d.GPUDriver = text(e.root, "sys/module/nvidia/version")
	if links, err := netlink.RdmaLinkList(); err == nil {
		for _, l := range links {
			d.RDMA = append(d.RDMA, l.Attrs.Name)
		}
	}
	if len(d.RDMA) == 0 { // kernels without netlink for it have the folder all the same
		entries, _ := os.ReadDir("/sys/class/infiniband")
		for _, entry := range entries {
			d.RDMA = append(d.RDMA, entry.Name())
		}
	}
	_, err := os.Stat("/dev/infiniband")
	d.RDMAUsable = err == nil
}

// nccl asks what NCCL would do.
func (e *examination) nccl(ctx context.Context) {
	if e.Options.NCCL == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	report, err := check.Run(ctx, *e.Options.NCCL)
	if err != nil {
		e.unseen("what NCCL does with the plugin", err.Error(), "mcast nccl check")
		return
	}
	e.Facts.NCCL = doctor.NCCL{Used: report.Used, Reason: report.Reason}
	if report.NCCL != nil {
		e.Facts.NCCL.Found, e.Facts.NCCL.Version = true, report.NCCL.Name
	}
	if report.Plugin != nil {
		e.Facts.NCCL.Plugin = report.Plugin.Path
	}
}
