// Package probe says what a shared library is to NCCL: whether the loader finds it, which version
// of NCCL it is, which network devices it offers as a plugin. Libraries are loaded by a child
// process, so that one that crashes does no harm.
package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Library is what loading one has shown.
type Library struct {
	Path    string  `json:"path,omitempty"`  // where the loader found it; empty: it could not be loaded
	Error   string  `json:"error,omitempty"` // why it could not be loaded, or the error that it returned
	NCCL    Version `json:"nccl,omitempty"`  // of ncclGetVersion; 0: it is not NCCL
	Net     *Offer  `json:"net,omitempty"`
	CollNet *Offer  `json:"collnet,omitempty"`

	// Log has the lines that it wrote meanwhile: if it is a plugin, its warnings.
	Log []string `json:"log,omitempty"`
}

// Offer is what a plugin offers in one of its tables.
type Offer struct {
	Name    string   `json:"name"`
	Devices []Device `json:"devices,omitempty"`
	Error   string   `json:"error,omitempty"`
}

// Device is a network device of a plugin.
type Device struct {
	Name    string `json:"name"`
	PCIPath string `json:"pci_path,omitempty"` // in /sys; empty: none
	Speed   int    `json:"speed_mbps"`
}

// Version is a version of NCCL as ncclGetVersion tells it, such as 23007 for 2.30.7.
type Version int

// Of returns the Version of three numbers.
func Of(major, minor, patch int) Version {
	if major == 2 && minor <= 8 {
		return Version(major*1000 + minor*100 + patch)
	}
	return Version(major*10000 + minor*100 + patch)
}

// String writes it as NVIDIA does.
func (v Version) String() string {
	if v < 10000 {
		return fmt.Sprintf("%d.%d.%d", v/1000, v%1000/100, v%100)
	}
	return fmt.Sprintf("%d.%d.%d", v/10000, v%10000/100, v%100)
}

// timeLimit is how long a library may take to load.
const timeLimit = 30 * time.Second

// Loader starts the child: a command to which the name of a library is added, which calls Child.
// env is its environment; nil: the environment of this process.
type Loader struct {
	Command []string
	Env     []string
}

// Job is the part of a rank's environment that describes a job with CollNet, as torchrun sets it. A plugin may offer
// devices by it.
func Job(nodes, ranks int) []string {
	return []string{"NCCL_COLLNET_ENABLE=1", fmt.Sprintf("LOCAL_WORLD_SIZE=%d", ranks),
		fmt.Sprintf("GROUP_WORLD_SIZE=%d", nodes), fmt.Sprintf("WORLD_SIZE=%d", nodes*ranks)}
}

// Load has a library loaded by its name, for which the loader searches, or its path. What keeps it
// from being loaded is in the result.
func (l Loader) Load(ctx context.Context, name string) Library {
	ctx, cancel := context.WithTimeoutCause(ctx, timeLimit, fmt.Errorf("it did not load in %v", timeLimit))
	defer cancel()
	words := append(l.Command[1:len(l.Command):len(l.Command)], name)
	child := exec.CommandContext(ctx, l.Command[0], words...)
	child.Env = l.Env
	child.WaitDelay = time.Second
	var out, log bytes.Buffer
	child.Stdout, child.Stderr = &out, &log
	err := child.Run()
	var found Library
	if text := out.Bytes(); err == nil {
		err = json.Unmarshal(text[bytes.LastIndex(bytes.TrimSpace(text), []byte("\n"))+1:], &found)
	}
	found.Log = lines(log.String())
	switch cause := context.Cause(ctx); {
	case cause != nil:
		found = Library{Error: cause.Error(), Log: found.Log}
	case err != nil:
		found = Library{Error: crash(err, found.Log), Log: found.Log}
	}
	return found
}

// crash says in a line how a child ended. Where a signal did, Go's runtime gets it and writes a page.
func crash(err error, log []string) string {
	text := "loading it ended the process"
	for _, line := range log {
		if signal := signalName.FindString(line); signal != "" {
			return text + ": " + signal
		}
	}
	if len(log) > 0 {
		return fmt.Sprintf("%s (%v): %s", text, err, log[0])
	}
	return fmt.Sprintf("%s: %v", text, err)
}

var signalName = regexp.MustCompile(`\bSIG[A-Z]+`)

func lines(text string) (all []string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, line)
		}
	}
	return slices.Compact(all) // net and CollNet may complain of the same
}
