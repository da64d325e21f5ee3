package main

/*
#include "plugin.h"
*/
import "C"

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/transport/netdev"
	"github.com/torch-mcast/torch-mcast/ncclnet/p2p"
)

// The plugin is what NCCL's tables (abi_v8.c ...) and tuner stand on, besides
// their C. Calls that come once a connection or once an operation enter Go; those
// that move or test point-to-point messages never do.

// plugin holds the findings of NCCL's inits. NCCL takes the first init as its measure for the process, so
// later inits only add devices. Settings come from the last init, and a connection keeps the settings of
// the time when it began (a net listen or connect, a CollNet listen). MCAST_GPU_MEMORY comes from the first
// init, as memory that NCCL registers belongs to no communicator.
var plugin struct {
	sync.RWMutex
	settings    config.Settings
	devices     []device
	collDevices int                        // the first so many are CollNet's, and one interface
	strings     map[string]C.struct_device // by device's name; NCCL keeps them
}

var warnOnce sync.Once

// saidOnce are warnings that this process has given.
var saidOnce sync.Map

// warnUnknown names variables that have no effect, once a process.
func warnUnknown(warn func(warning string)) {
	warnOnce.Do(func() {
		for _, warning := range config.Unknown(environ()) {
			warn(warning)
		}
	})
}

// devices returns the devices that MCAST_IFACE names, or all suitable ones if it names none.
func devices(names []string, version netdev.Version) (found []netdev.Device, err error) {
	if len(names) == 0 {
		return netdev.Devices("", version)
	}
	for _, name := range names {
		one, err := netdev.Devices(name, version)
		if err != nil {
			return nil, fmt.Errorf("MCAST_IFACE=%q: %w", name, err)
		}
		found = append(found, one...)
	}
	return found, nil
}

//export goPluginInit
func goPluginInit() C.nccl_result {
	return verdict("init", func() error {
		s, err := config.Load(environment, nil)
		if err != nil {
			return argument("%v", err)
		}
		warnUnknown(func(warning string) { say(C.NCCL_LOG_WARN, warning) })
		if value, _ := environment("NCCL_SOCKET_IFNAME"); s.Interface == "" {
			if s.Interface = socketInterface(value, upInterfaces()); s.Interface != "" {
				say(C.NCCL_LOG_WARN,
					fmt.Sprintf("init: NCCL_SOCKET_IFNAME=%s allows %s only, so no other interface is used; to use another one, set "+
						"MCAST_IFACE", value, s.Interface))
			}
		}
		version := netdev.Version(s.Version())
		found, err := devices(s.Interfaces(), version)
		plugin.Lock()
		defer plugin.Unlock()
		before := len(plugin.devices)
		switch {
		case before == 0 && err != nil:
			return err
		case before == 0:
			plugin.settings.GPUMemory = s.GPUMemory
		case err != nil:
			say(C.NCCL_LOG_WARN, fmt.Sprintf("init: going on with the %d devices of an earlier one: %v", before, err))
		}
		if was := plugin.settings.GPUMemory; s.GPUMemory != was {
			say(C.NCCL_LOG_WARN,
				fmt.Sprintf("init: MCAST_GPU_MEMORY=%s comes too late: it stays %s, as the first init in this process had it",
					s.GPUMemory, was))
			s.GPUMemory = was
		}
		plugin.settings = s
		if err == nil {
			plugin.devices = refreshed(plugin.devices, found, func(name string) ([]netdev.Device, error) {
				return netdev.Devices(name, version)
			})
		}
		if before == 0 {
			plugin.collDevices = collNetDevices(s)
			plugin.devices = repeated(plugin.devices, plugin.collDevices, netdev.NearGPUs())
		}
		for i, d := range plugin.devices {
			if d.gone == nil {
				say(C.NCCL_LOG_INFO, fmt.Sprintf("init: device %d is %s at %v (MCAST_IFACE names others)", i, d.Name, d.Addr))
			}
			switch {
			case d.gone != nil:
				say(C.NCCL_LOG_WARN, fmt.Sprintf("init: device %d, %s, cannot be used now: %v", i, d.Name, d.gone))
			case before > 0 && i >= before:
				say(C.NCCL_LOG_WARN,
					fmt.Sprintf("init: device %d, %s, is new: NCCL may go on with the devices that it knows, %s first", i, d.Name,
						plugin.devices[0].Name))
			}
		}
		return nil
	})
}

// known returns a device and the settings. It may be gone.
func known(dev int) (config.Settings, device, error) {
	plugin.RLock()
	defer plugin.RUnlock()
	if dev >= len(plugin.devices) || dev < 0 {
		return config.Settings{}, device{}, argument("device %d is not allowed: want 0 to %d", dev, len(plugin.devices)-1)
	}
	return plugin.settings, plugin.devices[dev], nil
}

// current is known, but fails if the device is gone: for callers about to use it.
func current(dev int) (config.Settings, netdev.Device, error) {
	s, d, err := known(dev)
	if err == nil && d.gone != nil {
		err = fmt.Errorf("device %d, %s, was there once and cannot be used now: %w", dev, d.Name, d.gone)
	}
	return s, d.Device, err
}

// gpuMemory returns MCAST_GPU_MEMORY.
func gpuMemory() string {
	plugin.RLock()
	defer plugin.RUnlock()
	return plugin.settings.GPUMemory
}

//export goDevices
func goDevices(count *C.int) C.nccl_result {
	plugin.RLock()
	defer plugin.RUnlock()
	*count = C.int(len(plugin.devices))
	return C.NCCL_SUCCESS
}

// collNetDevices returns how many devices CollNet has: as many on all ranks, or NCCL ends the job. So it
// does not go by the GPUs of this node.
func collNetDevices(s config.Settings) int {
	if s.CollNetDevices > 0 {
		return s.CollNetDevices
	}
	if enabled, _ := environment("NCCL_COLLNET_ENABLE"); enabled == "" || enabled == "0" {
		return 1
	}
	return ranksPerNode(environment)
}

// collDevices returns how many of the devices, the first ones, are CollNet's.
func collDevices() int {
	plugin.RLock()
	defer plugin.RUnlock()
	return min(plugin.collDevices, len(plugin.devices))
}

//export goCollDevices
func goCollDevices(count *C.int) C.nccl_result {
	*count = C.int(collDevices())
	return C.NCCL_SUCCESS
}

//export goDevice
func goDevice(dev C.int, out *C.struct_device) C.nccl_result {
	return verdict("getProperties", func() error {
		s, d, err := known(int(dev))
		if err != nil {
			return err
		}
		plugin.Lock()
		defer plugin.Unlock()
		c, ok := plugin.strings[d.label()]
		if !ok {
			c = C.struct_device{name: C.CString(d.label())}
			if path := cmp.Or(d.near, d.PCIPath); path != "" {
				c.pci_path = C.CString(path)
			}
			if plugin.strings == nil {
				plugin.strings = map[string]C.struct_device{}
			}
			plugin.strings[d.label()] = c
		}
		c.guid, c.speed = C.uint64_t(d.guid()), C.int(d.SpeedMbps)
		c.ptr_support = pointers(s, d)
		*out = c
		return nil
	})
}

//export goCollPointers
func goCollPointers() C.int { return reached(gpuMemory()) }

// pointers returns the kinds of memory that a device of net takes.
func pointers(s config.Settings, d device) C.int {
	if s.NetFabric != "verbs" {
		return reached(s.GPUMemory)
	}
	kinds := C.int(C.NCCL_PTR_HOST)
	rdma, err := p2p.OpenDevice(d.Name, d.Addr)
	if err != nil { // the first connection fails by it
		warning := fmt.Sprintf("init: MCAST_NET_FABRIC=verbs: %v", err)
		if _, said := saidOnce.LoadOrStore(warning, true); !said { // NCCL asks again and again
			say(C.NCCL_LOG_WARN, warning)
		}
		return kinds
	}
	if rdma.DMABuf {
		kinds |= C.NCCL_PTR_DMABUF
	}
	if peerMemory() {
		kinds |= C.NCCL_PTR_CUDA
	}
	return kinds
}

// peerMemory tells whether RDMA devices can register memory of NVIDIA's GPUs by its address: a module of the kernel
// does it.
func peerMemory() bool {
	return slices.ContainsFunc([]string{
		"/sys/module/nvidia_peermem/version", "/sys/kernel/mm/memory_peers/nv_mem/version",
		"/sys/kernel/mm/memory_peers/nv_mem_nc/version",
	}, func(file string) bool { _, err := os.Stat(file); return err == nil })
}

// reached returns the kinds of memory that the CPU reaches.
func reached(gpuMemory string) C.int {
	switch gpuMemory {
	case "coherent":
		return C.NCCL_PTR_HOST | C.NCCL_PTR_CUDA
	case "dmabuf":
		return C.NCCL_PTR_HOST | C.NCCL_PTR_CUDA | C.NCCL_PTR_DMABUF
	}
	return C.NCCL_PTR_HOST
}

// remoteError is what another rank has caused.
type remoteError struct{ error }

// verdict runs a call, logs why it fails and returns what NCCL is to know. A
// panic does not cross into C.
func verdict(call string, f func() error) C.nccl_result {
	err := func() (err error) {
		defer guard(&err)
		return f()
	}()
	if err == nil {
		return C.NCCL_SUCCESS
	}
	say(C.NCCL_LOG_WARN, call+": "+err.Error())
	return resultOf(err)
}

// say writes a line to NCCL's log.
func say(level C.int, line string) {
	text := C.CString(line)
	defer C.free(unsafe.Pointer(text))
	C.plugin_log_line(level, text)
}

// ncclHandler writes a group's log into NCCL's log, which filters by NCCL_DEBUG.
type ncclHandler struct{ attrs string }

func (h ncclHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }

func (h ncclHandler) Handle(_ context.Context, r slog.Record) error {
	var line strings.Builder
	line.WriteString(r.Message + h.attrs)
	r.Attrs(func(a slog.Attr) bool {
		line.WriteString(attribute(a))
		return true
	})
	level := C.int(C.NCCL_LOG_INFO)
	if r.Level >= slog.LevelWarn {
		level = C.NCCL_LOG_WARN
	}
	say(level, line.String())
	return nil
}

// attribute spells one as slog's text does.
func attribute(a slog.Attr) string {
	v := a.Value.String()
	if v == "" || strings.ContainsAny(v, " \"=") {
		v = strconv.Quote(v)
	}
	return " " + a.Key + "=" + v
}

func (h ncclHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		h.attrs += attribute(a)
	}
	return h
}

func (h ncclHandler) WithGroup(string) slog.Handler { return h }
