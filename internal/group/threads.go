package group

import (
	"log/slog"
	"os"
	"sync"

	"github.com/torch-mcast/torch-mcast/internal/hoststat"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

const (
	fewestThreads = 6 // that a rank starts, however small its job
	moreThreads   = "raise it: docker run --pids-limit=-1, podPidsLimit of the kubelet, TasksMax=infinity of systemd, " +
		"ulimit -u"
)

// roomForThreads refuses to begin where no threads can be had: Go ends the whole process then, in the midst of an
// operation. Ranks that begin at once do not see each other's threads, so it may still happen.
func roomForThreads(rank int, log *slog.Logger) error {
	return enough(rank, hoststat.ThreadsHere(os.DirFS("/")), log, &fewSaid)
}

// fewSaid is whether this process has said that threads are few.
var fewSaid sync.Once

func enough(rank int, t hoststat.Threads, log *slog.Logger, once *sync.Once) error {
	switch {
	case !t.Few():
		return nil
	case t.Left() >= fewestThreads:
		once.Do(func() {
			log.Warn("few more threads may be started, and without one Go ends the whole process (pthread_create failed); "+
				moreThreads,
				"limit", t.By, "allowed", t.Most, "running", t.Running)
		})
		return nil
	}
	return fabric.Unavailable("rank %d starts %d threads or more, and %s allows %d with %d running: %s",
		rank, fewestThreads, t.By, t.Most, t.Running, moreThreads)
}
