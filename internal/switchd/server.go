package switchd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/session"
	"github.com/torch-mcast/torch-mcast/internal/transport/identity"
)

// Server is a running switch. Any goroutine may call its methods.
type Server struct {
	cfg      Config
	listener net.Listener
	workers  []*worker
	counters counters
	sessions sync.WaitGroup // serve, one a connection
	ended    sync.WaitGroup // run, one a worker
	open     chan struct{}  // a place for each connection
	memory   *budget
	ring     *session.Ring // nil: no secrets
	pending  *pendingConns
	refusals refusals

	mu       sync.Mutex
	jobs     map[jobKey]*job
	conns    map[net.Conn]struct{} // of all sessions
	draining bool
	closed   bool
	empty    chan struct{} // closed when draining and the last job has ended
}

// acceptPause is for when there are no descriptors left: some job will end.
const acceptPause = 100 * time.Millisecond

// endGrace is how long the switch waits for members to take the news that their job is over.
const endGrace = time.Second

// jobKey names a job. Those of different secrets never meet.
type jobKey struct {
	secret string
	id     uint64
}

// Start runs a switch until Close. Its errors say what the configuration or the machine does not
// allow.
func Start(c Config) (*Server, error) {
	c, err := c.complete()
	if err != nil {
		return nil, err
	}
	c.Log = boundLines(c.Log)
	ring, err := c.Secrets.Ring(identity.Turns())
	if err != nil {
		return nil, fmt.Errorf("switch: %w", err)
	}
	s := &Server{
		cfg: c, ring: ring, pending: newPendingConns(c.Members), memory: newBudget(c.Memory, len(c.Secrets)),
		jobs:  map[jobKey]*job{},
		conns: map[net.Conn]struct{}{}, empty: make(chan struct{}),
		open: make(chan struct{}, c.Members+c.Members/4), // some are not admitted yet, or refused
	}
	if s.listener, err = c.Network.Listen(c.Bind); err != nil {
		return nil, fmt.Errorf("switch: %w", err)
	}
	for range c.Workers {
		w, err := newWorker(c.Network)
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.workers = append(s.workers, w)
		s.ended.Go(w.run)
	}
	s.sessions.Go(s.accept)
	return s, nil
}

// Addr is where the switch accepts sessions.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

func (s *Server) accept() {
	for {
		conn, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			s.cfg.Log.Warn("accept", "error", err)
			time.Sleep(acceptPause)
			continue
		}
		select {
		case s.open <- struct{}{}:
			s.sessions.Go(func() {
				if s.addConn(conn) {
					s.serve(conn)
				}
				s.removeConn(conn)
				<-s.open
			})
		default:
			s.counters.refuse(tooMany)
			_ = conn.Close() // nothing was promised
		}
	}
}

// addConn notes a connection; it reports whether the switch still takes any.
func (s *Server) addConn(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[conn] = struct{}{}
	return !s.closed
}

// removeConn closes a connection, if nobody has, and forgets it.
func (s *Server) removeConn(conn net.Conn) {
	_ = conn.Close() // nobody can do anything about it
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, conn)
}

// closeConns closes all connections.
func (s *Server) closeConns() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.conns {
		_ = conn.Close() // nobody can do anything about it
	}
}

// serve runs a session from greeting to end.
func (s *Server) serve(conn net.Conn) {
	one, ok := s.pending.enter(conn, time.Now())
	if !ok {
		s.counters.refuse(tooMany)
		return // the connection is closed: nothing was promised
	}
	p, err := session.Accept(conn, s.ring, handshake)
	if err != nil && s.ring != nil {
		s.pending.failed(one, time.Now())
	} else {
		s.pending.leave(one)
	}
	if err != nil {
		s.counters.refuse(unproven)
		s.refusals.note(s.cfg.Log, conn.RemoteAddr(), err, time.Now())
		return
	}
	j, err := s.admit(p)
	if err != nil {
		s.cfg.Log.Info("refused", "job", jobName(p), "member", p.Name(), "from", p.Remote().String(), "error", err)
		p.Refuse(asError(err))
		return
	}
	j.serve(p)
	s.forget(j)
}

// refusal is why somebody is not admitted, with the reason that is counted.
type refusal struct {
	reason reason
	text   string
}

// Error returns the text.
func (r *refusal) Error() string { return r.text }

func refuse(r reason, format string, args ...any) error {
	return &refusal{r, fmt.Sprintf(format, args...)}
}

// admit finds the job that a member asks for, or opens it, and counts one more session in it.
func (s *Server) admit(p *session.Peer) (j *job, err error) {
	defer func() {
		var no *refusal
		if errors.As(err, &no) {
			s.counters.refuse(no.reason)
		}
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return nil, refuse(draining, "%v", session.ErrDraining)
	}
	key := jobKey{p.Tenant.Text, p.Job}
	j, known := s.jobs[key]
	if known && j.epoch < p.Epoch {
		go j.end(&session.Error{Text: fmt.Sprintf("epoch %d of the job has begun, this is epoch %d", p.Epoch, j.epoch)})
		j = nil
	}
	if !known {
		if err := s.checkJobs(p.Tenant.Text); err != nil {
			return nil, err
		}
	}
	if j == nil {
		j = newJob(s, key, p)
		s.jobs[key] = j
	}
	if err := j.admit(p); err != nil {
		return nil, err
	}
	j.sessions++
	return j, nil
}

// checkJobs reports why there can be no further job of a secret, if there cannot.
func (s *Server) checkJobs(secret string) error {
	if len(s.jobs) >= s.cfg.Jobs {
		return refuse(tooMany, "the switch has %d jobs and takes no more", len(s.jobs))
	}
	n := 0
	for key := range s.jobs {
		if key.secret == secret {
			n++
		}
	}
	if n >= max(1, s.cfg.Jobs/max(1, len(s.cfg.Secrets))) {
		return refuse(tooMany, "the switch has %d jobs of this secret and takes no more", n)
	}
	return nil
}

// forget counts one session less in a job. One without any is ended, and
// dropped when it has given everything back.
func (s *Server) forget(j *job) {
	s.mu.Lock()
	j.sessions--
	last := j.sessions == 0
	s.mu.Unlock()
	if last {
		j.end(nil)
		<-j.released
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if last && j.sessions == 0 && s.jobs[j.key] == j {
		delete(s.jobs, j.key)
	}
	s.announceEmpty()
}

// announceEmpty tells Drain that there is no job any more.
func (s *Server) announceEmpty() {
	if s.draining && len(s.jobs) == 0 {
		select {
		case <-s.empty:
		default:
			close(s.empty)
		}
	}
}

// Draining reports whether the switch refuses new members.
func (s *Server) Draining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining
}

// Drain refuses new members, asks all others to leave, and returns when the
// last has left, or with an error that says how many jobs are left when ctx ends.
func (s *Server) Drain(ctx context.Context) error {
	s.mu.Lock()
	s.draining = true
	jobs := s.all()
	s.announceEmpty()
	s.mu.Unlock()
	for _, j := range jobs {
		j.drain()
	}
	select {
	case <-s.empty:
		return nil
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		return fmt.Errorf("%d jobs have not left the switch: %w", len(s.jobs), context.Cause(ctx))
	}
}

func (s *Server) all() (jobs []*job) {
	for _, j := range s.jobs {
		jobs = append(jobs, j)
	}
	return jobs
}

// Close ends the switch and all jobs, and hangs up on everybody. It waits for all its goroutines.
// Closing twice does nothing.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed, s.draining = true, true
	jobs := s.all()
	s.mu.Unlock()
	err := s.listener.Close()
	late := time.AfterFunc(endGrace, s.closeConns) // for members that do not take theirs
	for _, j := range jobs {
		j.end(&session.Error{Text: "the switch ends"})
	}
	late.Stop()
	s.closeConns()
	s.sessions.Wait()
	for _, w := range s.workers {
		w.stop()
	}
	s.ended.Wait()
	return err
}
