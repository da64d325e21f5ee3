/* The beginnings of two tables of NCCL's network plugin, version 8 (ext-net/ of NCCL's repository).
 * With them a program other than NCCL can ask a plugin for its devices. */
#include <stdint.h>

typedef void (*nccl_logger)(int level, unsigned long flags, const char *file, int line, const char *format, ...);

struct net_properties {
	char *name, *pci_path;
	uint64_t guid;
	int pointers, global, speed, port; /* speed: Mbit/s */
	float latency;
	int comms, receives, device_type, device_version;
};

/* ncclNetPlugin_v8 and ncclCollNetPlugin_v8 both begin so. */
struct plugin {
	const char *name;
	int (*init)(nccl_logger);
	int (*devices)(int *count);
	int (*properties)(int device, struct net_properties *);
};

/* log_to_stderr is the logger that a plugin is given. */
void log_to_stderr(int level, unsigned long flags, const char *file, int line, const char *format, ...);

static inline int plugin_init(const struct plugin *p) { return p->init(log_to_stderr); }
static inline int plugin_devices(const struct plugin *p, int *count) { return p->devices(count); }
static inline int plugin_properties(const struct plugin *p, int device, struct net_properties *props)
{
	return p->properties(device, props);
}
static inline int version_of(void *get, int *version) { return ((int (*)(int *))get)(version); }
