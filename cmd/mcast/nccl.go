package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/torch-mcast/torch-mcast/internal/cli"
	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/nccl/check"
	"github.com/torch-mcast/torch-mcast/internal/nccl/machine"
	"github.com/torch-mcast/torch-mcast/internal/nccl/probe"
)

// ncclCommand is the command line of `mcast nccl`.
type ncclCommand struct {
	Check    ncclCheckCommand    `cmd:"" help:"Say whether NCCL will use the plugin and its CollNet, and what stands in the way. Needs no GPU."`
	Topology ncclTopologyCommand `cmd:"" help:"Write a file for NCCL_TOPO_FILE, with a network device of the plugin near each GPU."`
	Load     ncclLoadCommand     `cmd:"" hidden:""`
}

// ncclCheckCommand is the command line of `mcast nccl check`.
type ncclCheckCommand struct {
	Nodes    int    `default:"4" placeholder:"N" help:"Hosts of the job. Default: ${default}."`
	GPUs     int    `name:"gpus" placeholder:"N" help:"GPUs of a host, a rank each. Default: as many as this host has, or 1."`
	NVSwitch string `name:"nvswitch" default:"unknown" enum:"yes,no,unknown" placeholder:"yes|no" help:"Whether an NVSwitch joins a host's GPUs. Default: whether sysfs shows one."`
	NCCL     string `name:"nccl" type:"path" placeholder:"FILE" help:"The libnccl.so.2 to check. Default: torch's, else the loader's."`
	Python   string `placeholder:"FILE" help:"The Python that has torch. Default: VIRTUAL_ENV's, else python3 of PATH."`
	Root     string `type:"path" default:"/" hidden:"" help:"The folder that stands for /, where /sys, /proc and /etc are looked for."`
	JSON     bool   `name:"json" help:"Print a JSON object."`
}

// Run checks. Its error is the exit status alone: the report has said why.
func (c *ncclCheckCommand) Run() error {
	if c.Nodes < 1 || c.GPUs < 0 {
		return config.Mistakef("--nodes=%d --gpus=%d are not allowed: want at least 1", c.Nodes, c.GPUs)
	}
	ctx, stop := cli.UntilSignal()
	defer stop()
	program, loader, err := ncclLoader()
	if err != nil {
		return err
	}
	report, err := check.Run(ctx, check.Options{
		Nodes: c.Nodes, GPUs: c.GPUs, NVSwitch: c.NVSwitch, LibNCCL: c.NCCL, Python: c.Python,
		Loader: loader, Program: program, Environ: os.Environ(), Root: c.Root,
	})
	if err != nil {
		return err
	}
	if c.JSON {
		err = json.NewEncoder(os.Stdout).Encode(report)
	} else {
		err = report.Write(os.Stdout)
	}
	if err == nil && !report.Used {
		os.Exit(1)
	}
	return err
}

// ncclLoader is this program and its command that loads a library.
func ncclLoader() (program string, command []string, err error) {
	if program, err = os.Executable(); err != nil {
		return "", nil, err
	}
	return program, []string{program, "nccl", "load"}, nil
}

// ncclLoadCommand is the child of the other two.
type ncclLoadCommand struct {
	Library string `arg:"" help:"Its name or path."`
}

// Run loads it.
func (c *ncclLoadCommand) Run() error { return probe.Child(os.Stdout, c.Library) }

// ncclTopologyCommand is the command line of `mcast nccl topology`.
type ncclTopologyCommand struct {
	GPU     []string  `name:"gpu" placeholder:"BUSID[=NUMA]" help:"A GPU of this host, such as 0000:3b:00.0=1; may be repeated. Default: all that sysfs and NVIDIA's driver show."`
	Nets    cli.Names `placeholder:"NAME,..." help:"The plugin's network devices, one for each GPU. Default: asks the plugin."`
	Library string    `type:"path" placeholder:"FILE" help:"The plugin. Default: lib/libnccl-net-mcast.so beside this program's folder."`
	Root    string    `type:"path" default:"/" hidden:"" help:"The folder that stands for /."`
}

// Run writes the file to the standard output.
func (c *ncclTopologyCommand) Run() error {
	m, err := machine.Read(c.Root)
	if err != nil {
		return err
	}
	if c.GPU != nil {
		m.GPUs = nil
		for _, text := range c.GPU {
			g, err := machine.ParseGPU(text)
			if err != nil {
				return err
			}
			m.GPUs = append(m.GPUs, g)
		}
	}
	if len(m.GPUs) == 0 {
		return fmt.Errorf("neither sysfs nor NVIDIA's driver shows a GPU here: name them, as in --gpu=0000:3b:00.0=0 " +
			"(address and NUMA node)")
	}
	if c.Nets == nil {
		if c.Nets, err = c.devices(len(m.GPUs)); err != nil {
			return err
		}
	}
	out := bufio.NewWriter(os.Stdout)
	return errors.Join(m.WriteTopology(out, c.Nets), out.Flush())
}

// devices asks the plugin for the names of the devices that it offers so many ranks of a node.
func (c *ncclTopologyCommand) devices(ranks int) ([]string, error) {
	ctx, stop := cli.UntilSignal()
	defer stop()
	program, loader, err := ncclLoader()
	if err != nil {
		return nil, err
	}
	if c.Library == "" {
		c.Library = filepath.Join(filepath.Dir(program), "../lib/libnccl-net-mcast.so")
	}
	env := append(os.Environ(), probe.Job(2, ranks)...)
	library := probe.Loader{Command: loader, Env: env}.Load(ctx, c.Library)
	switch {
	case library.Path == "":
		return nil, fmt.Errorf("the plugin cannot be asked for its devices (say --library=FILE or --nets=NAME,NAME): %s",
			library.Error)
	case library.Net == nil:
		return nil, fmt.Errorf("%s is no network plugin", library.Path)
	case library.Net.Error != "":
		return nil, fmt.Errorf("%s: %s", library.Path, library.Net.Error)
	}
	var names []string
	for _, d := range library.Net.Devices {
		names = append(names, d.Name)
	}
	return names, nil
}
