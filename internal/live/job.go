package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"slices"
	"syscall"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

// jobSuffix is what names of sockets end with that answer for other ranks. Who connects says of which group, and
// gets what its ranks say.
const jobSuffix = ".job"

const (
	jobsAtOnce  = 4        // questions that a process answers
	mostOfAJob  = 1 << 30  // bytes of an answer
	mostToAsk   = 64 << 10 // bytes of a question
	jobPatience = 2 * time.Second
)

// Job answers for all ranks of a group.
type Job struct {
	Group string
	// Ask returns what ranks say of themselves. If some are named it waits for these alone.
	Ask func(some []int) any
}

// question is what who connects asks.
type question struct {
	Group string `json:"group"`
	Some  []int  `json:"some,omitempty"` // ranks to wait for
}

// serveJobs answers until the listener is closed.
func (p *publisher) serveJobs() {
	free := make(chan struct{}, jobsAtOnce)
	for {
		c, err := p.jobListener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(patience) // out of descriptors, perhaps for now
			continue
		}
		free <- struct{}{}
		go func() {
			p.answer(c)
			<-free
		}()
	}
}

// answer answers one question.
func (p *publisher) answer(c net.Conn) {
	defer func() { _ = c.Close() }()
	if held, ok := c.(syscall.Conn); ok {
		sys.PrivateConn(held)
	}
	_ = c.SetDeadline(time.Now().Add(jobPatience))
	var q question
	if json.NewDecoder(io.LimitReader(c, mostToAsk)).Decode(&q) != nil {
		return
	}
	mu.Lock()
	i := slices.IndexFunc(p.pages, func(e *entry) bool { return e.job != nil && e.job.Group == q.Group })
	var job *Job
	if i >= 0 {
		job = p.pages[i].job
	}
	mu.Unlock()
	if job == nil {
		return // it has ended
	}
	said := job.Ask(q.Some)
	_ = c.SetDeadline(time.Now().Add(jobPatience))
	_ = json.NewEncoder(c).Encode(said) // whoever asked may be gone
}

// Ask asks the process of a page for all ranks of a group, into what it says.
func (p *Process[T]) Ask(ctx context.Context, group string, some []int, said any) error {
	if p.job == "" {
		return errors.New("it publishes no socket that answers for other ranks")
	}
	c, err := new(net.Dialer).DialContext(ctx, "unix", p.job)
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("it has ended, or is of a version that does not answer for other ranks")
	}
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	end, _ := ctx.Deadline() // the zero time is none
	if err := c.SetDeadline(end); err != nil {
		return err
	}
	if err := json.NewEncoder(c).Encode(question{group, some}); err != nil {
		return err
	}
	err = json.NewDecoder(io.LimitReader(c, mostOfAJob)).Decode(said)
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("group %s has ended there", group)
	}
	return err
}
