package group

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/bootstrap"
	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/monitor"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// hostEnv makes the test binary a rank on one of two hosts that a cable joins.
const hostEnv = "GROUP_TEST_HOST"

// hostRole is what the test wants of a rank.
type hostRole struct {
	Rank, Size, Chunk int
	Family            string
	Timeout           time.Duration
	Interface         string // asked for, of which host number %[1]d is; "": v0 or v1
	Anywhere          bool   // none is
	Fabric            string // "": udp
	Secret            string
}

// hostReport is what a rank answers when it has joined, and after each line that it is sent.
type hostReport struct {
	Error  string
	Kind   mesh.FaultKind
	Rank   int // that the fault names
	Info   monitor.Info
	Stats  monitor.Stats
	Memory fabric.Stats // of messages to ranks of the same host
}

// playHost is a rank that does an operation of calls for each line of its standard input.
func playHost(text string) int {
	var r hostRole
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	say := func(g *Group, err error) {
		var rep hostReport
		if err != nil {
			rep.Error = err.Error()
			var f *Fault
			if errors.As(err, &f) {
				rep.Kind, rep.Rank = f.Kind, f.Rank
			}
		}
		if g != nil {
			rep.Info, rep.Stats = g.Info(), g.Stats()
			if g.region != nil {
				rep.Memory = g.region.Messages().Stats()
			}
		}
		_ = json.NewEncoder(os.Stdout).Encode(&rep)
	}
	s := config.Default()
	s.Fabric, s.Timeout, s.Chunk = cmp.Or(r.Fabric, "udp"), r.Timeout, r.Chunk
	s.Interface, s.Family, s.Secret, s.Encrypt = fmt.Sprintf("v%d", r.Rank%2), r.Family, r.Secret, r.Secret != ""
	if r.Interface != "" {
		s.Interface = fmt.Sprintf(r.Interface, r.Rank%2)
	}
	if r.Anywhere {
		s.Interface = ""
	}
	g, err := joinHost(r, s)
	say(g, err)
	if err != nil {
		return 0
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		say(g, hostCalls[in.Text()](g, r.Rank))
	}
	_ = g.CloseWithin(0)
	return 0
}

func joinHost(r hostRole, s config.Settings) (*Group, error) {
	e, err := Open(Options{Rank: r.Rank, Size: r.Size, Settings: s})
	if err != nil {
		return nil, err
	}
	at := map[string]string{"4": "10.9.0.1:7999", "6": "[fd09::1]:7999"}[r.Family]
	blobs, err := bootstrap.Rendezvous(context.Background(), at, r.Rank, r.Size, e.Blob())
	if err != nil {
		return nil, err
	}
	return e.Join(context.Background(), blobs)
}

// hostCalls are what a rank does for a line.
var hostCalls = map[string]func(g *Group, rank int) error{"": bothKinds, "messages": allMessages, "receive": receiveAny}

// bothKinds checks every byte.
func bothKinds(g *Group, rank int) error {
	const n = 1 << 20
	size := g.Size()
	mine, all := bytes.Repeat([]byte{byte(rank + 1)}, n), make([]byte, size*n)
	if err := g.Allgather(mine, all); err != nil {
		return err
	}
	var want []byte
	for root := range size {
		want = append(want, bytes.Repeat([]byte{byte(root + 1)}, n)...)
	}
	if !bytes.Equal(all, want) {
		return fmt.Errorf("rank %d: allgather brought the wrong bytes", rank)
	}
	if err := g.ReduceScatter(all, mine, reduce.U8, reduce.Sum, 1); err != nil {
		return err
	}
	if !bytes.Equal(mine, bytes.Repeat([]byte{byte(size * (rank + 1))}, n)) {
		return fmt.Errorf("rank %d: reduce-scatter brought the wrong bytes", rank)
	}
	return nil
}

// pair is two hosts, with the even ranks on one and the odd ones on the other.
type pair struct {
	hosts [2]*systest.Namespace
	in    []io.WriteCloser // of each rank
	out   []*json.Decoder
	ranks []*os.Process
}

// startPair joins ranks over a cable of MTU 9000 that prepare may have broken.
func startPair(
	t *testing.T, family string, size, chunk int, timeout time.Duration, prepare func(hosts [2]*systest.Namespace),
) *pair {
	t.Helper()
	return startRoles(t, hostRole{Size: size, Chunk: chunk, Family: family, Timeout: timeout}, prepare)
}

// startRoles is startPair with roles that are alike but for the rank.
func startRoles(t *testing.T, role hostRole, prepare func(hosts [2]*systest.Namespace)) *pair {
	t.Helper()
	size := role.Size
	p := &pair{hosts: systest.Cable(t, 9000), in: make([]io.WriteCloser, size), out: make([]*json.Decoder, size)}
	for i, h := range p.hosts {
		h.Unmerged(t, fmt.Sprintf("v%d", i))
	}
	if prepare != nil {
		prepare(p.hosts)
	}
	for r := range size {
		role.Rank = r
		text, err := json.Marshal(role)
		require.NoError(t, err)
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), hostEnv+"="+string(text))
		cmd.Stderr = os.Stderr
		p.in[r], err = cmd.StdinPipe()
		require.NoError(t, err)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		p.out[r] = json.NewDecoder(out)
		p.hosts[r%2].Do(func() { err = cmd.Start() }) // a child is where the thread is that starts it
		require.NoError(t, err)
		p.ranks = append(p.ranks, cmd.Process)
		t.Cleanup(func() {
			_ = p.in[r].Close()
			_ = cmd.Wait()
		})
	}
	return p
}

// reports returns what the ranks say next.
func (p *pair) reports(t *testing.T) []hostReport {
	t.Helper()
	r := make([]hostReport, len(p.out))
	for i := range r {
		require.NoError(t, p.out[i].Decode(&r[i]), "rank %d has ended", i)
	}
	return r
}

// run has the ranks do their operations.
func (p *pair) run(t *testing.T) []hostReport {
	t.Helper()
	p.begin(t, "")
	return p.reports(t)
}

// begin has the ranks begin to do something of hostCalls.
func (p *pair) begin(t *testing.T, call string) {
	t.Helper()
	for _, in := range p.in {
		_, err := in.Write([]byte(call + "\n"))
		require.NoError(t, err)
	}
}

// overEach runs a test over IPv4, where a packet of 1500 bytes holds a chunk of 1440, and IPv6.
func overEach(t *testing.T, f func(t *testing.T, family string, headers int)) {
	t.Helper()
	for family, headers := range map[string]int{"4": 60, "6": 80} {
		t.Run("IPv"+family, func(t *testing.T) {
			waits(t)
			f(t, family, headers)
		})
	}
}

func TestNarrowPathIsFoundAtJoin(t *testing.T) { overEach(t, narrowPathIsFoundAtJoin) }

func narrowPathIsFoundAtJoin(t *testing.T, family string, headers int) {
	size := map[string]int{"4": 12, "6": 3}[family] // of 12, what ranks tell of the path does not fit one packet
	p := startPair(t, family, size, 0, systest.Limit, func(h [2]*systest.Namespace) { h[1].DropLarger(t, 1500) })
	for _, r := range p.reports(t) {
		require.Empty(t, r.Error)
		require.Equal(t, (1500-headers)/32*32, r.Info.ChunkBytes)
		require.Len(t, r.Info.Notes, 1)
		require.Contains(t, r.Info.Notes[0], "packets of 9000 bytes from rank 0 do not reach rank 1, packets of 1500 do")
		require.Contains(t, r.Info.Notes[0], "mtu 1500)")
	}
	for _, r := range p.run(t) {
		require.Empty(t, r.Error)
	}
}

func TestChunkThatDoesNotPassEndsTheJoin(t *testing.T) {
	waits(t)
	p := startPair(t, "4", 2, 8000, systest.Limit, func(h [2]*systest.Namespace) { h[0].DropLarger(t, 1500) })
	for _, r := range p.reports(t) {
		require.Contains(t, r.Error,
			"MCAST_CHUNK=8000 is too large: packets of 8060 bytes from rank 1 do not reach rank 0, packets of 1500 do")
		require.Contains(t, r.Error, "set MCAST_CHUNK to 1440 at most")
		require.Equal(t, Path, r.Kind)
		require.Zero(t, r.Rank)
	}
}

func TestPathThatNarrowsIsNamed(t *testing.T) {
	waits(t)
	p := startPair(t, "4", 2, 0, short, nil)
	for _, r := range p.reports(t) {
		require.Empty(t, r.Error)
		require.Equal(t, 8928, r.Info.ChunkBytes)
		require.Empty(t, r.Info.Notes)
	}
	p.hosts[1].DropLarger(t, 1500)
	for _, r := range p.run(t) {
		require.Equal(t, Path, r.Kind, r.Error)
		require.Equal(t, 1, r.Rank)
		require.Contains(t, r.Error, "data from rank 0 do not reach rank 1, though it answers: TCP segments of 8948 bytes "+
			"have not been acknowledged for ")
		require.Contains(t, r.Error, "v0's MTU")
	}
}

func TestNetworkWithoutMulticastIsNoted(t *testing.T) { overEach(t, networkWithoutMulticastIsNoted) }

func networkWithoutMulticastIsNoted(t *testing.T, family string, headers int) {
	p := startPair(t, family, 2, 0, systest.Limit, func(h [2]*systest.Namespace) { h[0].DropMulticast(t) })
	for _, r := range p.reports(t) {
		require.Empty(t, r.Error)
		require.Equal(t, (9000-headers)/32*32, r.Info.ChunkBytes)
		require.Len(t, r.Info.Notes, 1)
		require.Contains(t, r.Info.Notes[0], "multicast does not pass from rank 1 on ")
		require.Contains(t, r.Info.Notes[0], "Allgather and Broadcast go from rank to rank over TCP")
		require.Equal(t, [][2]int{{1, 0}}, r.Info.Unheard)
		require.Equal(t, r.Info.Rank == 0, r.Info.Peers[0].Packet == 0)
		require.Contains(t, r.Info.Notes[0],
			map[string]string{"4": ".force_igmp_version=2`", "6": "a switch that snoops MLD needs a querier"}[family])
		require.Equal(t, "unicast", r.Info.Allgather)
	}
	for _, r := range p.run(t) {
		require.Empty(t, r.Error)
	}
}
