// Package examine looks at a host, and tries on it what the library will do. It asks the kernel and judges nothing:
// what it sees are doctor.Facts.
//
// Nothing needs root. What only root can see is among the facts that are not seen.
package examine

import (
	"bufio"
	"bytes"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/doctor"
	"github.com/torch-mcast/torch-mcast/internal/nccl/check"
)

// Options say how to look.
type Options struct {
	Environ []string       // as os.Environ returns it
	Listen  time.Duration  // for an IGMP querier; 0: not at all
	NCCL    *check.Options // what `mcast nccl check` is asked; nil: nothing
	Brief   bool           // look at no more than which interface the library takes
	// Root is a folder with proc and sys; its files replace those of this host. Empty: there is none.
	// Tests use it for faults that they cannot make on the host itself.
	Root string
}

// examination is one examination of a host. It examines the network namespace of the calling thread, so it starts no
// goroutine that opens sockets.
type examination struct {
	Options
	doctor.Facts
	settings config.Settings
	proc     procfs.FS
	self     procfs.Proc // zero without /proc
	root     fs.FS
}

// unseen takes down what cannot be looked at.
func (e *examination) unseen(what, why, remedy string) {
	e.Unseen = append(e.Unseen, doctor.Unseen{What: what, Why: why, Remedy: remedy})
}

// sysctl returns a number of the kernel's settings, such as net/core/rmem_max; otherwise if there
// is none. A setting of a namespace is read in the namespace of the calling thread.
func (e *examination) sysctl(name string, otherwise int) int {
	words := strings.Fields(text(e.root, "proc/sys/"+name))
	if len(words) == 0 {
		return otherwise
	}
	n, err := strconv.Atoi(words[0])
	if err != nil {
		return otherwise
	}
	return n
}

// text returns a file of one line; empty if it cannot be read.
func text(root fs.FS, name string) string {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(b))
}

// float returns a number; 0 if the text is none.
func float(text string) float64 {
	x, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0
	}
	return x
}

// fields returns the numbers of a file with a name and a number a line.
func fields(root fs.FS, name string) map[string]int {
	found := make(map[string]int)
	b, _ := fs.ReadFile(root, name) // none: nothing is found
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), " ")
		if n, err := strconv.Atoi(strings.TrimSpace(value)); err == nil {
			found[key] = n
		}
	}
	return found
}
