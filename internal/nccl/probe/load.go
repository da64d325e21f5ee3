package probe

/*
#cgo LDFLAGS: -ldl
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>

#include "tables.h"

static const char *path_of(void *library)
{
	struct link_map *map;

	return dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 ? map->l_name : "";
}
*/
import "C"

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"unsafe"
)

// Child loads a library into this process as NCCL would, and writes its findings as JSON, a
// Library. Loading may end the process: that is why it is a process of its own.
func Child(w io.Writer, name string) error {
	return json.NewEncoder(w).Encode(load(name))
}

func load(name string) Library {
	runtime.LockOSThread() // dlerror is of the thread that called dlopen
	defer runtime.UnlockOSThread()
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	library := C.dlopen(text, C.RTLD_NOW|C.RTLD_LOCAL)
	if library == nil {
		return Library{Error: C.GoString(C.dlerror())}
	}
	found := Library{Path: C.GoString(C.path_of(library))}
	if get := symbol(library, "ncclGetVersion"); get != nil {
		var version C.int
		if result := C.version_of(get, &version); result != 0 {
			found.Error = fmt.Sprintf("ncclGetVersion: error %d", result)
		}
		found.NCCL = Version(version)
	}
	if net := symbol(library, "ncclNetPlugin_v8"); net != nil {
		found.Net = offerOf(net)
	}
	if coll := symbol(library, "ncclCollNetPlugin_v8"); coll != nil {
		found.CollNet = offerOf(coll)
	}
	return found
}

func symbol(library unsafe.Pointer, name string) unsafe.Pointer {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	return C.dlsym(library, text)
}

// offerOf asks a plugin for its devices.
func offerOf(table unsafe.Pointer) *Offer {
	plugin := (*C.struct_plugin)(table)
	offer := &Offer{Name: C.GoString(plugin.name)}
	if result := C.plugin_init(plugin); result != 0 {
		offer.Error = fmt.Sprintf("init: error %d", result)
		return offer
	}
	var count C.int
	if result := C.plugin_devices(plugin, &count); result != 0 {
		offer.Error = fmt.Sprintf("devices: error %d", result)
		return offer
	}
	for i := range count {
		var p C.struct_net_properties
		if result := C.plugin_properties(plugin, i, &p); result != 0 {
			offer.Error = fmt.Sprintf("getProperties of device %d: error %d", i, result)
			return offer
		}
		offer.Devices = append(offer.Devices,
			Device{Name: C.GoString(p.name), PCIPath: C.GoString(p.pci_path), Speed: int(p.speed)})
	}
	return offer
}
