package bench

import (
	"os"
	"os/signal"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/group"
	"github.com/torch-mcast/torch-mcast/internal/monitor"
)

// dumping is begun once in a process.
var dumping sync.Once

// dumpOnSignal has SIGUSR2 write the trace of this process where MCAST_TRACE says, as the library does for programs
// that load it.
func dumpOnSignal(s *config.Settings) {
	if s.Trace == "off" {
		return
	}
	dumping.Do(func() {
		asked, where, log := make(chan os.Signal, 1), s.Trace, group.Logger(s)
		signal.Notify(asked, unix.SIGUSR2)
		go func() {
			for range asked {
				monitor.DumpAtSignal(where, log)
			}
		}()
	})
}
