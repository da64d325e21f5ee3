/* NCCL's logger takes a format and arguments, which Go cannot give it. */
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include "plugin.h"

static _Atomic(nccl_logger) logger;

/* plugin_log_to sets where lines go: to the logger of the latest init. */
void plugin_log_to(nccl_logger log)
{
	if (log != NULL)
		atomic_store(&logger, log);
}

static void write_line(int level, const char *format, va_list args)
{
	nccl_logger log = atomic_load(&logger);
	char line[1024];

	if (log == NULL)
		return;
	vsnprintf(line, sizeof(line), format, args);
	log(level, NCCL_SUBSYS_INIT | NCCL_SUBSYS_NET, __FILE__, 0, "NET/mcast: %s", line);
}

void plugin_log(int level, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	write_line(level, format, args);
	va_end(args);
}

/* plugin_refuse writes a warning and returns result. */
nccl_result plugin_refuse(nccl_result result, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	write_line(NCCL_LOG_WARN, format, args);
	va_end(args);
	return result;
}

/* plugin_log_line is plugin_log for Go. */
void plugin_log_line(int level, const char *line) { plugin_log(level, "%s", line); }
