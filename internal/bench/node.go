package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/httpd"
	"github.com/torch-mcast/torch-mcast/internal/stamp"
	"github.com/torch-mcast/torch-mcast/internal/transport/identity"
)

// switchProcess is an aggregation node that this process has started for a run.
type switchProcess struct {
	cmd              *exec.Cmd
	output           *os.File // of the node
	said             excerpt
	copied           chan struct{} // closed when all output is in said
	address, metrics string
}

// nodeStart bounds how long a node may take until it listens.
const nodeStart = 30 * time.Second

// startNode has program, which is mcast, be a switch on a free port of this host and returns when it listens, which it
// may take for as long as there is patience.
func startNode(ctx context.Context, program string, patience time.Duration) (*switchProcess, error) {
	output, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	n := &switchProcess{output: output, copied: make(chan struct{})}
	n.cmd = exec.Command(program, "switch", "--bind=127.0.0.1:0", "--http=127.0.0.1:0", "--json")
	n.cmd.Stdout, n.cmd.Stderr = theirs, theirs
	// The node ends with this process, however that ends. What counts is the end
	// of the thread that starts it, which therefore must not end before.
	runtime.LockOSThread()
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	err = errors.Join(n.cmd.Start(), theirs.Close())
	if err == nil {
		err = n.listen(ctx, patience)
	} else {
		err = errors.Join(err, output.Close())
	}
	if err != nil {
		return nil, fmt.Errorf("the switch could not be started: %w", err)
	}
	return n, nil
}

// listen reads what the node says until it says where it listens, and leaves the rest to a
// goroutine.
func (n *switchProcess) listen(ctx context.Context, patience time.Duration) error {
	_ = n.output.SetReadDeadline(time.Now().Add(patience))
	stop := context.AfterFunc(ctx, func() { _ = n.output.SetReadDeadline(time.Unix(1, 0)) })
	lines := bufio.NewScanner(io.TeeReader(n.output, &n.said))
	for n.address == "" && lines.Scan() {
		var entry struct{ URL string }
		if json.Unmarshal(lines.Bytes(), &entry) == nil && entry.URL != "" {
			n.metrics = entry.URL
		}
		if address, ok := strings.CutPrefix(lines.Text(), "listening on "); ok {
			n.address = address
		}
	}
	wanted := stop()
	_ = n.output.SetReadDeadline(time.Time{})
	go func() {
		defer close(n.copied)
		_, _ = io.Copy(&n.said, n.output) // until the node has ended
	}()
	if n.address != "" && wanted {
		return nil
	}
	_ = n.cmd.Process.Kill()
	err := errors.Join(context.Cause(ctx), lines.Err(), n.wait())
	return fmt.Errorf("%w%s", err, n.said.quote())
}

// wait waits until the node has ended and reports how.
func (n *switchProcess) wait() error {
	err := n.cmd.Wait()
	<-n.copied
	return errors.Join(err, n.output.Close())
}

// end asks the switch to end, waits for it, and returns its totals.
func (n *switchProcess) end() (NodeUse, error) {
	summed, err := n.summed()
	_ = n.cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(grace, func() { _ = n.cmd.Process.Kill() })
	ended := n.wait()
	kill.Stop()
	if err = errors.Join(err, ended); err != nil {
		return NodeUse{}, fmt.Errorf("the switch (process %d): %w%s", n.cmd.Process.Pid, err, n.said.quote())
	}
	state := n.cmd.ProcessState
	return newNodeUse(summed, state.UserTime()+state.SystemTime()), nil
}

// summed reads from the node's metrics how many bytes of contributions it has
// taken. When the job has gone, the figure is final.
func (n *switchProcess) summed() (bytes float64, err error) {
	secret, err := config.SecretOf(os.LookupEnv) // the node has the environment of this process
	if err != nil {
		return 0, err
	}
	pages, err := identity.NewPages(secret, 1)
	if err != nil {
		return 0, err
	}
	client := httpd.Client(pages)
	client.Timeout = grace
	for try := 0; ; try++ {
		jobs := 0.0
		if bytes, jobs, err = scrape(client, n.metrics); err != nil || jobs == 0 || try == 100 {
			return bytes, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// scrape reads the metrics at a URL.
func scrape(client *http.Client, url string) (summed, jobs float64, err error) {
	response, err := client.Get(url)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = response.Body.Close() }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return 0, 0, err
	}
	for _, worker := range families["mcast_switch_summed_bytes_total"].GetMetric() {
		summed += worker.GetCounter().GetValue()
	}
	for _, all := range families["mcast_switch_jobs"].GetMetric() {
		jobs += all.GetGauge().GetValue()
	}
	return summed, jobs, nil
}

// NodeUse is the work of a switch in a whole run, warm-up included: the bytes that it took from
// members, P for each that it returned, and the time of all its cores.
type NodeUse struct {
	SummedBytes float64 `json:"switch_summed_bytes"`
	CPUSeconds  float64 `json:"switch_cpu_s"`
	PerCore     float64 `json:"switch_summed_GBps_per_core"`
}

func newNodeUse(bytes float64, cpu time.Duration) NodeUse {
	return NodeUse{bytes, cpu.Seconds(), gbps(bytes, float64(cpu.Microseconds()))}
}

// print writes a JSON object of its own, or a line below the table.
func (u NodeUse) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(struct {
			stamp.Stamp
			NodeUse
		}{stamp.Now(), u})
	}
	_, err := fmt.Fprintf(w, "# The switch summed %.3f GB in %.3f s of processor time: %.3f GB/s a core.\n",
		u.SummedBytes/1e9, u.CPUSeconds, u.PerCore)
	return err
}
