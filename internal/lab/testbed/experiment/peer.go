package experiment

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed/launch"
)

// The peers.
const (
	ours = "mcast" // `mcast bench`
	ring = "ring"  // `mcast-lab ring`: a unicast ring over TCP
	gloo = "gloo"  // benchmarks/testbed/gloo.py
	mpi  = "mpi"   // benchmarks/peers/peer.c under OpenMPI's mpirun, over TCP
)

// Peers are the names of all.
var Peers = []string{ours, ring, gloo, mpi}

// work is a collective that a peer is to run.
type work struct {
	peer       string
	variant    string // tells works of a peer apart; empty: there is one
	collective string // as `mcast bench` calls it
	bytes      []int  // of a rank's shard
	iters      int
	warmup     int         // at least 1
	perHost    int         // ranks on each host; 0: 1
	hosts      []int       // in the order of ranks; nil: all, by number
	racks      bool        // ours are told under which leaf they are
	cores      map[int]int // on which one a rank is alone; the others run wherever they are let
	flags      []string    // of `mcast bench`, besides these
	env        []string
	nodes      *launch.Nodes // that ours sum at
	loss       float64       // of every host's link in each direction
	cast       string        // the packets that are lost: see Cast of testbed.Loss
	tcp        string        // congestion control of the hosts; empty: the one in Options
	mayFail    bool          // that it ends with an error is a result, too
}

// losses returns what every host's link loses.
func (w *work) losses() testbed.Loss {
	if w.loss == 0 {
		return testbed.Loss{}
	}
	return testbed.Loss{Share: w.loss, Cast: w.cast}
}

// job returns how the peer is launched.
func (l *lab) job(tb *testbed.Testbed, w work) (launch.Job, error) {
	var sizes []string
	for _, n := range w.bytes {
		sizes = append(sizes, strconv.Itoa(n))
	}
	list := strings.Join(sizes, ",")
	rounds := []string{"--bytes=" + list, fmt.Sprintf("--iters=%d", w.iters), fmt.Sprintf("--warmup=%d", w.warmup)}
	perHost := max(w.perHost, 1)
	job := launch.Job{
		Env: w.env, Nodes: w.nodes, Lab: l.Programs.Lab, PerHost: perHost, Hosts: w.hosts, Cores: w.cores, Topology: w.racks,
	}
	switch w.peer {
	case ours:
		job.Command = slices.Concat([]string{l.Programs.Mcast, "bench", w.collective, "--json"}, rounds, w.flags)
	case ring:
		job.Command = slices.Concat([]string{l.Programs.Lab, "ring", w.collective, "--json"}, rounds, w.flags)
	case gloo:
		// One process on host 0 forks, and its children enter the others: torch is loaded once.
		hosts := tb.Hosts()
		job.Hosts, job.PerHost = []int{0}, 1
		job.Command = append([]string{l.python(), l.file("benchmarks/testbed/gloo.py"), w.collective,
			"--namespaces=" + strings.TrimSuffix(hosts[0].Namespace, "0"), fmt.Sprintf("--ranks=%d", len(hosts)*perHost),
			fmt.Sprintf("--per-host=%d", perHost), "--master=" + hosts[0].Addr.String()}, rounds...)
	case mpi:
		job.MPI = true
		job.Command = append([]string{"mpirun", l.mpiPeer, w.collective, rounds[1], rounds[2]}, sizes...)
	default:
		return job, fmt.Errorf("there is no peer %q: want one of %s", w.peer, strings.Join(Peers, ", "))
	}
	return job, nil
}

// bedWithNodes is bed with aggregation nodes, which end with the testbed.
func (l *lab) bedWithNodes(spec testbed.Spec) (*testbed.Testbed, error) {
	tb, err := l.bed(spec)
	if err != nil {
		return nil, err
	}
	l.nodes, err = launch.StartNodes(l.ctx, tb, launch.NodeOptions{Mcast: l.Programs.Mcast})
	return tb, err
}

// peers returns the peers that are asked for and can be run here, and adds a remark for each that
// cannot.
func (l *lab) peers(some ...string) []string {
	var found []string
	for _, p := range some {
		if l.Peers != nil && !slices.Contains(l.Peers, p) {
			continue
		}
		why, known := l.absent[p]
		if !known {
			if why = l.missing(p); why != "" {
				l.remark("Without %s: %s.", p, why)
			}
			l.absent[p] = why
		}
		if why != "" {
			continue
		}
		found = append(found, p)
	}
	return found
}

// missing says why a peer cannot be run here.
func (l *lab) missing(peer string) string {
	switch peer {
	case gloo:
		if out, err := exec.Command(l.python(), "-c", "import torch").CombinedOutput(); err != nil {
			return fmt.Sprintf("no torch in %s (%v %s)", l.python(), err, lastLine(out))
		}
	case mpi:
		return l.buildMPI()
	}
	return ""
}

// buildMPI compiles the peer for OpenMPI, once a lab.
func (l *lab) buildMPI() string {
	if l.mpiPeer != "" {
		return ""
	}
	for _, program := range []string{"mpirun", "mpicc"} {
		if _, err := exec.LookPath(program); err != nil {
			return "no " + program
		}
	}
	dir, err := os.MkdirTemp("", "mcast-experiment-")
	if err != nil {
		return err.Error()
	}
	l.temporary = append(l.temporary, dir)
	peer := filepath.Join(dir, "peer")
	if out, err := exec.Command("mpicc", "-O3", "-pthread", "-o", peer,
		l.file("benchmarks/peers/peer.c")).CombinedOutput(); err != nil {
		return fmt.Sprintf("mpicc: %v %s", err, lastLine(out))
	}
	l.mpiPeer = peer
	return ""
}

// python is the interpreter that has torch.
func (l *lab) python() string { return l.file(".venv/bin/python") }

// file is a path in the repository.
func (l *lab) file(path string) string { return filepath.Join(l.Repository, path) }

func lastLine(text []byte) string {
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}
