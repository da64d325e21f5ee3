/* NVSwitches, as NCCL looks for them (ncclTopoGetXmlFromGpu of src/graph/xml.cc, v2.20.5 to v2.30.7): in
 * NCCL_TOPO_FILE, and where the NVLinks of GPUs end. NCCL's costs on a node depend on it. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "plugin.h"

#define NVSWITCH_CLASS "0x068000" /* of its PCI function */

/* The calls of NVML in use, and its description of a PCI function: the bus id, and more. */
struct nvml {
	int (*init)(void);
	int (*count)(unsigned *count);
	int (*device)(unsigned index, void **device);
	int (*link)(void *device, unsigned link, unsigned *active);
	int (*far_end)(void *device, unsigned link, void *pci);
};
union nvml_pci {
	char bus_id[16];
	char all[256];
};

enum { NVLINKS = 36 }; /* a GPU has at most; NVML refuses those that it has not */

static bool nvml_open(struct nvml *n)
{
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);

	if (library == NULL)
		return false;
	n->init = (int (*)(void))dlsym(library, "nvmlInit_v2");
	n->count = (int (*)(unsigned *))dlsym(library, "nvmlDeviceGetCount_v2");
	n->device = (int (*)(unsigned, void **))dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
	if (n->device == NULL)
		n->device = (int (*)(unsigned, void **))dlsym(library, "nvmlDeviceGetHandleByIndex");
	n->link = (int (*)(void *, unsigned, unsigned *))dlsym(library, "nvmlDeviceGetNvLinkState");
	n->far_end = (int (*)(void *, unsigned, void *))dlsym(library, "nvmlDeviceGetNvLinkRemotePciInfo");
	return n->init != NULL && n->count != NULL && n->device != NULL && n->link != NULL && n->far_end != NULL &&
		n->init() == 0;
}

/* is_nvswitch tells by a bus id. A guest does not see the switches of its host: NVML then has all ones. */
static bool is_nvswitch(const char *bus_id)
{
	char path[64], class[16] = "";
	FILE *f;

	if (strncasecmp(bus_id, "fffffff:ffff:ff", 15) == 0)
		return true;
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%.15s/class", bus_id);
	for (char *c = path; *c != '\0'; c++)
		if (*c >= 'A' && *c <= 'F')
			*c += 'a' - 'A';
	f = fopen(path, "re");
	if (f == NULL)
		return false;
	if (fgets(class, sizeof(class), f) == NULL)
		class[0] = '\0';
	fclose(f);
	return strncmp(class, NVSWITCH_CLASS, strlen(NVSWITCH_CLASS)) == 0;
}

static bool in_topology_file(void)
{
	const char *name = getenv("NCCL_TOPO_FILE");
	FILE *f = name == NULL ? NULL : fopen(name, "re");
	char *line = NULL;
	size_t size = 0;
	bool found = false;

	if (f == NULL)
		return false;
	while (!found && getline(&line, &size, f) >= 0)
		found = strstr(line, "\"" NVSWITCH_CLASS "\"") != NULL;
	free(line);
	fclose(f);
	return found;
}

bool nvswitch_seen(void)
{
	struct nvml n;
	unsigned count = 0, active;
	union nvml_pci pci;
	void *device;

	if (in_topology_file())
		return true;
	if (!nvml_open(&n) || n.count(&count) != 0)
		return false;
	for (unsigned i = 0; i < count; i++) {
		if (n.device(i, &device) != 0)
			continue;
		for (unsigned link = 0; link < NVLINKS && n.link(device, link, &active) == 0; link++) {
			memset(&pci, 0, sizeof(pci));
			if (active && n.far_end(device, link, &pci) == 0 && is_nvswitch(pci.bus_id))
				return true;
		}
	}
	return false;
}
