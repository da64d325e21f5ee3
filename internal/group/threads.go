package group

import (
	"log/slog"
	"os"
	"sync"

	"github.com/torch-mcast/torch-mcast/internal/hoststat"
)

const (
	fewestThreads = 6  // that a rank starts, however small its job
	usualThreads  = 32 // that it may, with those of Go
)

// threadsOnce is looked at once a process: for a user's limit all processes of the host are counted.
var threadsOnce = sync.OnceValue(func() hoststat.Threads { return hoststat.ThreadsHere(os.DirFS("/")) })

// enough refuses to begin where no threads can be had: Go ends the whole process then, in the midst of an operation.
func enough(t hoststat.Threads, log *slog.Logger) error {
	left, limited := t.Left()
	const remedy = "raise it: docker run --pids-limit=-1, podPidsLimit of the kubelet, TasksMax=infinity of systemd, ulimit -u"
	switch {
	case !limited || left >= usualThreads:
		return nil
	case left >= fewestThreads:
		log.Warn("few more threads may be started: without one Go ends the whole process (pthread_create failed); "+remedy,
			"limit", t.By, "allowed", t.Most, "running", t.Running)
		return nil
	}
	return argument("a rank starts %d threads or more, and %s allows %d with %d running: %s", fewestThreads, t.By, t.Most, t.Running, remedy)
}
