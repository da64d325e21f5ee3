package launch

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

const (
	grace     = 5 * time.Second // between asking a process to end and ending it
	tailBytes = 4 << 10         // of a log, quoted in an error
)

// process is a command inside a namespace, the leader of a process group of its own. Both
// its outputs go to one log.
type process struct {
	cmd    *exec.Cmd
	log    *os.File
	mu     sync.Mutex
	dead   bool          // guarded by mu; the process id may mean another one afterwards
	done   chan struct{} // closed when it has ended and its output is written
	output error         // once done: what went wrong with the output
}

// startProcess starts a command. Its output goes to the log, and to the writers of cmd where it has
// any.
func (s *starter) startProcess(namespace, log string, cmd *exec.Cmd) (*process, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_TRUNC|os.O_RDWR|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, log: file, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = both(file, cmd.Stdout), both(file, cmd.Stderr)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = grace // for what has left the process group and holds a pipe
	if err := s.start(namespace, cmd); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	go p.wait()
	return p, nil
}

// both leaves a file as it is if it is alone: the process then writes to it without a pipe.
func both(file *os.File, other io.Writer) io.Writer {
	if other == nil {
		return file
	}
	return io.MultiWriter(file, other)
}

// wait waits for the end of the process and ends the rest of its group.
func (p *process) wait() {
	defer close(p.done)
	for errors.Is(unix.Waitid(unix.P_PID, p.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
	p.mu.Lock()
	_ = unix.Kill(-p.cmd.Process.Pid, unix.SIGKILL)
	p.dead = true
	p.mu.Unlock()
	var exit *exec.ExitError
	if err := p.cmd.Wait(); !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		p.output = err
	}
}

// signal sends a signal to the process and all of its group.
func (p *process) signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return os.ErrProcessDone
	}
	return unix.Kill(-p.cmd.Process.Pid, sig)
}

// stop asks processes to end, ends them if they do not, and returns when all have ended.
func stop(all ...*process) {
	for _, p := range all {
		_ = p.signal(syscall.SIGTERM)
		_ = p.signal(syscall.SIGCONT) // one that is stopped hears nothing
	}
	late := time.AfterFunc(grace, func() {
		for _, p := range all {
			_ = p.signal(syscall.SIGKILL)
		}
	})
	defer late.Stop()
	for _, p := range all {
		<-p.done
	}
}

// killed reports whether a signal has ended the process, or is about to: the kernel closes a
// process's sockets, by which others learn of its death, before it tells who waits for it.
func (p *process) killed() bool {
	p.mu.Lock()
	alive := !p.dead && !exiting(p.cmd.Process.Pid)
	p.mu.Unlock()
	if alive {
		return false
	}
	<-p.done
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled()
}

// exiting reports whether a process has begun to exit. The flag stays until the process is waited
// for.
func exiting(pid int) bool {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return false
	}
	stat, err := p.Stat()
	const pfExiting = 0x4 // PF_EXITING of linux/sched.h
	return err == nil && stat.Flags&pfExiting != 0
}

// tail returns the last lines of the log, each indented on a line of its own.
func (p *process) tail() string {
	end, err := p.log.Seek(0, io.SeekEnd)
	if err != nil {
		return "; its log: " + err.Error()
	}
	from := max(end-tailBytes, 0)
	text, err := io.ReadAll(io.NewSectionReader(p.log, from, end-from))
	if err != nil {
		return "; its log: " + err.Error()
	}
	lines := strings.TrimSpace(string(text))
	if lines == "" {
		return "; it said nothing"
	}
	return "\n    " + strings.ReplaceAll(lines, "\n", "\n    ")
}
