package main

import (
	"fmt"
	"os"
	"path/filepath"

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
	if _, err := os.Lstat(c.Out); err == nil {
		return fmt.Errorf("%s exists: want a new file to write, then the traces to read", c.Out)
	}
	f, err := os.CreateTemp(filepath.Dir(c.Out), filepath.Base(c.Out)+".*.part")
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
