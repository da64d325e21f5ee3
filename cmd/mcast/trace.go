package main

import (
	"os"

	"github.com/torch-mcast/torch-mcast/internal/trace"
)

// traceCommand works on what ranks have written: docs/MONITORING.md.
type traceCommand struct {
	Merge traceMergeCommand `cmd:"" help:"Write traces of processes of one host, ours and torch.profiler's, as one."`
}

// traceMergeCommand merges traces.
type traceMergeCommand struct {
	Out   string   `arg:"" help:"File to write, for ui.perfetto.dev or chrome://tracing." placeholder:"OUT"`
	Files []string `arg:"" help:"Traces in JSON, or such in .gz." placeholder:"FILE"`
}

// Run writes the file.
func (c *traceMergeCommand) Run() (err error) {
	f, err := os.Create(c.Out + ".part")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	if err = trace.Merge(f, c.Files); err != nil {
		_ = f.Close()
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), c.Out)
}
