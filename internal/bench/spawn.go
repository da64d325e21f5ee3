package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/torch-mcast/torch-mcast/internal/config"
)

const (
	listenerFD = 3               // of rank 0's rendezvous
	grace      = 2 * time.Second // between asking a rank to end and ending it
	keptBytes  = 4 << 10         // of a rank's standard error, both from its beginning and from its end
)

// startRanks runs this program again once for every rank, with more variables
// in its environment, and waits for all. When one fails, or ctx ends, the
// others are ended by their process id. Rank 0 has this process's standard output.
func startRanks(ctx context.Context, ranks int, args []string, variables ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	address := ln.Addr().String()
	socket, err := ln.File() // stays open in rank 0, so nobody can take the port
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	if err := ln.Close(); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	said := make([]excerpt, ranks)
	for r := range ranks {
		cmd := exec.CommandContext(ctx, self, append(args, "--spawned")...)
		cmd.Env = append(os.Environ(), fmt.Sprintf("RANK=%d", r), fmt.Sprintf("WORLD_SIZE=%d", ranks),
			"MCAST_RENDEZVOUS="+address)
		cmd.Env = append(cmd.Env, variables...)
		cmd.Stderr = &said[r]
		if r == 0 {
			cmd.Stdout, cmd.ExtraFiles = os.Stdout, []*os.File{socket}
		}
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = grace
		lifeline, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			group.Go(func() error { return fmt.Errorf("rank %d could not be started: %w", r, err) })
			break
		}
		group.Go(func() error {
			defer func() { _ = lifeline.Close() }()
			if err := cmd.Wait(); err != nil && ctx.Err() == nil {
				// The error is not wrapped: our exit status is a rank's only if that is the status of a mistake.
				failed := fmt.Errorf("rank %d (process %d) failed: %s%s", r, cmd.Process.Pid, err.Error(), said[r].quote())
				if cmd.ProcessState.ExitCode() == config.ExitMistake {
					return config.Mistake{Err: failed}
				}
				return failed
			}
			return ctx.Err()
		})
	}
	err = errors.Join(group.Wait(), socket.Close())
	if err == nil {
		for r := range said {
			if len(said[r].head) > 0 {
				fmt.Fprintf(os.Stderr, "rank %d said:%s\n", r, said[r].quote())
			}
		}
	}
	return err
}

// endWithParent ends this rank when the process that started it is gone,
// however it went: the standard input is a pipe that the parent holds.
func endWithParent() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	fmt.Fprintln(os.Stderr, "the process that started this rank is gone")
	os.Exit(1)
}

// excerpt keeps the first and the last keptBytes that were written to it: a program that crashes
// says why first, and where last.
type excerpt struct {
	head, tail []byte
	left       int // bytes between them
}

func (e *excerpt) Write(b []byte) (int, error) {
	n := min(len(b), keptBytes-len(e.head))
	e.head = append(e.head, b[:n]...)
	e.tail = append(e.tail, b[n:]...)
	if over := len(e.tail) - keptBytes; over > 0 {
		e.tail = append(e.tail[:0], e.tail[over:]...)
		e.left += over
	}
	return len(b), nil
}

// cause is where a line of a log says why.
var cause = regexp.MustCompile(` (?:error|reason)=("(?:[^"\\]|\\.)*"|\S+)`)

// once leaves out of the lines before the last the cause that the last one ends with.
func once(lines string) string {
	end := strings.LastIndexByte(lines, '\n') + 1
	return cause.ReplaceAllStringFunc(lines[:end], func(said string) string {
		why := cause.FindStringSubmatch(said)[1]
		if plain, err := strconv.Unquote(why); err == nil {
			why = plain
		}
		if strings.HasSuffix(lines[end:], ": "+why) {
			return ""
		}
		return said
	}) + lines[end:]
}

// quote returns the lines, each indented on a line of its own.
func (e *excerpt) quote() string {
	text := string(e.head)
	if e.left > 0 {
		text += fmt.Sprintf("\n[%d bytes are left out here]\n", e.left)
	}
	lines := once(strings.TrimSpace(text + string(e.tail)))
	if lines == "" {
		return "; it said nothing"
	}
	return "\n    " + strings.ReplaceAll(lines, "\n", "\n    ")
}
