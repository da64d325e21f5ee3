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
)

// jobSuffix ends the name of the socket that answers for other ranks. A client sends a group's name, and gets what the
// ranks of that group say.
const jobSuffix = ".job"

const (
	jobsAtOnce  = 4         // questions that a process answers
	mostOfAJob  = 300 << 20 // bytes of an answer: more than a mesh gathers
	mostToAsk   = 256 << 10 // bytes of a question: all ranks that there may be, by number
	jobPatience = 2 * time.Second
)

// Job answers for all ranks of a group.
type Job struct {
	Group string
	// Ask returns what ranks say of themselves, once all have but those of skip, or some time is over; nil: the group
	// ends.
	Ask func(skip []int) any
}

// question is what who connects asks.
type question struct {
	Group string `json:"group"`
	Skip  []int  `json:"skip,omitempty"` // ranks not to wait for
}

// answer answers one question.
func (p *publisher) answer(c net.Conn) {
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
	said := job.Ask(q.Skip)
	if said == nil {
		return
	}
	_ = c.SetDeadline(time.Now().Add(jobPatience))
	_ = json.NewEncoder(c).Encode(said) // the other end may be gone
}

// EndedError says that a process, or its group, is gone, or never had a socket that answers for other ranks.
type EndedError struct{ Group string }

func (e *EndedError) Error() string {
	return fmt.Sprintf("group %s has ended there, or is of a version that does not answer for other ranks", e.Group)
}

// Ask asks the process of a page for all ranks of a group except skip, and decodes the answer into said. An *EndedError
// says that the process has ended.
func (p *Process[T]) Ask(ctx context.Context, group string, skip []int, said any) error {
	c, err := new(net.Dialer).DialContext(ctx, "unix", p.job)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return &EndedError{group}
	}
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	end, _ := ctx.Deadline() // the zero time is none
	if err := c.SetDeadline(end); err != nil {
		return err
	}
	if err := json.NewEncoder(c).Encode(question{group, skip}); err != nil {
		return err
	}
	err = json.NewDecoder(io.LimitReader(c, mostOfAJob)).Decode(said)
	if errors.Is(err, io.EOF) {
		return &EndedError{group}
	}
	return err
}
