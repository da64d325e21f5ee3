package collnet

import (
	"io"

	"github.com/torch-mcast/torch-mcast/internal/trace"
)

// WriteTrace writes what the groups of this process have done last, as JSON that ui.perfetto.dev and chrome://tracing
// show: of each lane the newest 512 operations, with their phases, waits and repairs. Groups that are closed, or have
// MCAST_TRACE=off, are not in it. It may be called at any time; operations go on meanwhile.
//
// This package installs no handler for signals; a program that wants a trace at SIGUSR2 has one (os/signal) call it.
func WriteTrace(w io.Writer) error { return trace.Take().Write(w) }
