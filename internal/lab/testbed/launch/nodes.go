package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
)

// Nodes are the aggregation nodes of a testbed, `mcast switch` in each of the namespaces that it
// has for them. With several leaves each leaf has one, below a root.
type Nodes struct {
	options NodeOptions
	logs    string
	starter *starter
	nodes   []node
}

// NodeOptions may be empty.
type NodeOptions struct {
	Mcast string   // path of the program
	Args  []string // further flags of `mcast switch`
}

type node struct {
	testbed.Node
	listens string   // host:port, once it has been started
	process *process // nil: it was stopped
}

// nodeStart bounds how long a node may take until it listens.
const nodeStart = 30 * time.Second

// StartNodes starts all nodes and returns when they listen. One method may be called at a time,
// but Address always.
func StartNodes(ctx context.Context, tb *testbed.Testbed, options NodeOptions) (_ *Nodes, err error) {
	n := &Nodes{options: options}
	for _, place := range tb.Nodes() {
		n.nodes = append(n.nodes, node{Node: place})
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	if n.starter, err = newStarter(tb); err != nil {
		return nil, err
	}
	if n.logs, err = os.MkdirTemp(tb.Dir(), "nodes-"); err != nil {
		return nil, err
	}
	for i := range slices.Backward(n.nodes) { // the root first: others name its port
		if err = n.Start(ctx, i); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// Address returns where a host's node listens, as MCAST_SWITCH names it.
func (n *Nodes) Address(host testbed.Host) string {
	i := slices.IndexFunc(n.nodes, func(n node) bool { return n.Leaf == host.Leaf })
	return n.nodes[i].listens
}

// Start starts a node, one that was stopped at the same address as before, and returns when it
// listens.
func (n *Nodes) Start(ctx context.Context, i int) error {
	w := &n.nodes[i]
	if w.process != nil {
		return fmt.Errorf("switch %d runs already", i)
	}
	bind := w.listens
	if bind == "" {
		bind = net.JoinHostPort(w.Addr.String(), "0")
	}
	args := []string{"switch", "--json", "--bind=" + bind}
	if w.Parent >= 0 {
		args = append(args, "--parent="+n.nodes[w.Parent].listens)
	}
	// The links' rate is not passed on: windows made for it and for the delay of an idle network are
	// too small beside an Allgather, which fills a queue and so makes the delay several times longer.
	cmd := exec.Command(n.options.Mcast, append(args, n.options.Args...)...)
	heard := &listening{address: make(chan string, 1)}
	cmd.Stdout = heard
	p, err := n.starter.startProcess(w.Namespace, filepath.Join(n.logs, "node"+strconv.Itoa(i)+".log"), cmd)
	if err != nil {
		return fmt.Errorf("switch %d: %w", i, err)
	}
	late := time.NewTimer(nodeStart)
	defer late.Stop()
	select {
	case address := <-heard.address:
		if w.listens == "" { // else it is the same
			w.listens = address
		}
		w.process = p
		return nil
	case <-p.done:
		err = errors.New("it ended")
	case <-late.C:
		err = fmt.Errorf("it did not listen within %v", nodeStart)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	stop(p)
	return errors.Join(fmt.Errorf("switch %d could not be started: %w%s", i, err, p.tail()), p.log.Close())
}

// Stop kills a node, as if its machine had failed, and returns when it is dead.
func (n *Nodes) Stop(i int) error {
	w := &n.nodes[i]
	if w.process == nil {
		return fmt.Errorf("switch %d is stopped already", i)
	}
	err := w.died()
	_ = w.process.signal(syscall.SIGKILL)
	<-w.process.done
	err = errors.Join(err, w.process.log.Close())
	w.process = nil
	return err
}

// Close ends all nodes. It is an error if one had died by then without Stop.
func (n *Nodes) Close() error {
	var errs []error
	var alive []*process
	for i := range n.nodes {
		if w := &n.nodes[i]; w.process != nil {
			errs = append(errs, w.died())
			alive = append(alive, w.process)
			w.process = nil
		}
	}
	stop(alive...)
	for _, p := range alive {
		errs = append(errs, p.log.Close())
	}
	n.starter.close()
	if n.logs != "" {
		errs = append(errs, os.RemoveAll(n.logs))
	}
	return errors.Join(errs...)
}

// died returns an error if the node has ended by itself.
func (w *node) died() error {
	select {
	case <-w.process.done:
		return fmt.Errorf("switch %d on %s (process %d) died: %v%s", w.Index, w.Namespace, w.process.cmd.Process.Pid,
			w.process.cmd.ProcessState, w.process.tail())
	default:
		return nil
	}
}

// listening hears a node say where it listens.
type listening struct {
	line    []byte // the beginning of a line, as far as it has come
	address chan string
}

func (l *listening) Write(b []byte) (int, error) {
	l.line = append(l.line, b...)
	for {
		line, rest, whole := bytes.Cut(l.line, []byte{'\n'})
		if !whole {
			return len(b), nil
		}
		if address, ok := strings.CutPrefix(string(line), "listening on "); ok {
			l.address <- address // once
		}
		l.line = rest
	}
}
