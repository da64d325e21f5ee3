package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/torch-mcast/torch-mcast/internal/trace"
)

// traceCommand works on what ranks have written: docs/how-to/monitor.md.
type traceCommand struct {
	Merge traceMergeCommand `cmd:"" help:"Write traces of processes of one host, ours and torch.profiler's, as one."`
}

// traceMergeCommand merges traces.
type traceMergeCommand struct {
	Out   string   `arg:"" help:"File to write, for ui.perfetto.dev or chrome://tracing." placeholder:"OUT"`
	Files []string `arg:"" help:"Traces in JSON, or such in .gz." placeholder:"FILE"`
}

// Run writes the file.
func (c *traceMergeCommand) Run() error {
	err := trace.MergeFile(c.Out, c.Files)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s exists: want a new file to write, then the traces to read", c.Out)
	}
	return err
}
