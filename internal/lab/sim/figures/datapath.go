package figures

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/lab/chart"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/fattree"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
)

// The DPA (Khalilov et al., SC24, II-C): cores of 16 hardware threads at 1.8 GHz, each of
// which issues one instruction a cycle.
const (
	dpaGHz     = 1.8
	dpaThreads = 16
	dpaGbps    = 200
)

// datapath is a line of table I: what a completion takes of a thread.
type datapath struct {
	name                 string
	instructions, cycles float64
	gib                  float64 // GiB/s of one thread, as measured there
}

// datapaths are the lines of the table, each with the instructions of our kernel on riscv64, of
// benchmarks/results/receive.ndjson, where 64 completions are there when it is called.
var datapaths = []struct{ ours, paper datapath }{
	counted(datapath{"UD", 113, 1084, 5.2}, 94.66),
	counted(datapath{"UC", 66, 598, 11.9}, 48.35),
}

// counted is a line of the table, and the same with our instructions: they are fewer cycles by as many as they are
// fewer. What a thread waits for memory is the paper's in both, as an emulator does not know it.
func counted(paper datapath, instructions float64) struct{ ours, paper datapath } {
	ours := paper
	ours.instructions, ours.cycles = instructions, paper.cycles-paper.instructions+instructions
	paper.name += ", table I's instructions"
	return struct{ ours, paper datapath }{ours, paper}
}

// cost is how long a completion takes a thread where some are busy: its latency, which threads hide
// from each other, unless the instructions of all on its core take longer.
func (d *datapath) cost(threads int) time.Duration {
	cycles := max(d.cycles, d.instructions*float64(min(threads, dpaThreads)))
	return time.Duration(math.Round(cycles / dpaGHz))
}

// net joins two hosts; one receives with some threads.
func (d *datapath) net(threads int) network.Config {
	return network.Config{
		Tree: fattree.Config{Hosts: 2}, Gbps: dpaGbps, Latency: 500 * time.Nanosecond, Workers: threads,
		Cost: d.cost(threads),
	}
}

// stream is a client that saturates a leaf with datagrams, one after the other
// for each of its threads, as in the paper (VI-C): no protocol, just the datapath.
type stream struct {
	chunks int
	last   time.Duration // when the last was received
	net    *network.Network
}

// Receive counts a chunk.
func (r *stream) Receive(*network.Packet) { r.chunks, r.last = r.chunks-1, r.net.Now() }

// Wake is never asked for.
func (r *stream) Wake(uint64) {}

// datapathRow is a point of fig. 13 to 16.
type datapathRow struct {
	Datapath string  `json:"datapath"`
	Threads  int     `json:"threads"`
	Bytes    int     `json:"bytes"`
	Chunk    int     `json:"chunk"`
	CostNS   int64   `json:"cost_ns"`
	GiB      float64 `json:"gib_per_s"`
	Rate     float64 `json:"million_chunks_per_s"`
}

// receive has a leaf receive a stream with some threads.
func (d *datapath) receive(s *sheet, threads, bytes, chunk int) (datapathRow, error) {
	return measured(s, func() (datapathRow, error) { return d.run(s.Seed, threads, bytes, chunk) })
}

func (d *datapath) run(seed uint64, threads, bytes, chunk int) (datapathRow, error) {
	c := d.net(threads)
	row := datapathRow{Datapath: d.name, Threads: threads, Bytes: bytes, Chunk: chunk, CostNS: int64(c.Cost)}
	packets := max(1, chunk/packetBytes) // of a chunk, which completes once
	c.MTU, c.Cost = min(chunk, packetBytes)+network.Header, c.Cost/time.Duration(packets)
	net, err := network.New(c, seed)
	if err != nil {
		return row, err
	}
	r := &stream{chunks: bytes / chunk, net: net}
	net.Attach(1, r)
	for i := range r.chunks {
		p := net.Packet()
		p.From, p.To, p.Group, p.Bytes, p.Count = 0, 1, int32(i), int32(chunk), int32(packets)
		net.Send(p)
	}
	for net.Step() {
	}
	if r.chunks != 0 {
		return row, fmt.Errorf("%d chunks did not arrive", r.chunks)
	}
	row.GiB = float64(bytes) / (1 << 30) / r.last.Seconds()
	row.Rate = float64(bytes/chunk) / micros(r.last)
	return row, nil
}

// setting is with how many threads a leaf receives what.
type setting struct{ threads, bytes, chunk int }

// line has a leaf receive in a setting for each place on the x axis.
func (d *datapath) line(
	s *sheet, xs []float64, at func(x float64) setting, y func(datapathRow) float64,
) ([]chart.Point, error) {
	var pts []chart.Point
	for _, x := range xs {
		o := at(x)
		row, err := d.receive(s, o.threads, o.bytes, o.chunk)
		if err != nil {
			return nil, err
		}
		pts = append(pts, chart.Point{X: x, Y: y(row)})
	}
	return pts, nil
}

func gib(r datapathRow) float64    { return r.GiB }
func rateOf(r datapathRow) float64 { return r.Rate }

// full returns from where on the link is full; 0: nowhere.
func full(pts []chart.Point) float64 {
	for _, p := range pts {
		if p.Y > 0.95*linkGiB(packetBytes) {
			return p.X
		}
	}
	return 0
}

// linkGiB is what the link carries of payload in chunks of some bytes.
func linkGiB(chunk float64) float64 {
	return dpaGbps * 1e9 / 8 / (1 << 30) * chunk / (chunk + network.Header)
}

// threads shows how the receive path scales with threads (fig. 13 and table I).
func threads(s *sheet) error {
	c := chart.New("Receive datapath: 8 MiB, chunks of 4 KiB", "DPA threads", "GiB/s")
	counts := []float64{1, 2, 3, 4, 5, 6, 8, 12, 16}
	c.LogX(chart.Plain, 1, 2, 4, 8, 16)
	at := func(threads float64) setting { return setting{int(threads), 8 << 20, packetBytes} }
	for i := range datapaths {
		d, paper := &datapaths[i].ours, &datapaths[i].paper
		pts, err := d.line(s, counts, at, gib)
		if err != nil {
			return err
		}
		c.Line(d.name, pts)
		beside, err := paper.line(s, counts, at, gib)
		if err != nil {
			return err
		}
		c.Claim(paper.name, beside...)
		c.Claim(fmt.Sprintf("table I: one %s thread, %g GiB/s", d.name, d.gib), chart.Point{X: 1, Y: d.gib},
			chart.Point{X: 1.4, Y: d.gib})
		one := pts[0].Y
		s.claim("one "+d.name+" thread", fmt.Sprintf("%.1f GiB/s", d.gib),
			"%.1f GiB/s at %.1f GHz, %.1f with the paper's instructions", one, dpaGHz, beside[0].Y).arithmetic()
		first := full(pts)
		said, fits := "4 threads", within(3, 4)
		if d.name == "UD" {
			said, fits = "8 to 16 threads", within(8, 16)
		}
		s.claim(d.name+" fills 200 Gbit/s with", said, "%.0f threads", first).agrees(fits, first)
		s.says("one %s thread has %.1f GiB/s, and %.0f fill the link", d.name, one, first)
	}
	if err := root(s, c, counts); err != nil {
		return err
	}
	c.Level("link, 200 Gbit/s", 1, 16, linkGiB(packetBytes))
	c.Y.Min, c.Y.Max = 0, 55
	s.chart("", c)
	return nil
}

// root draws what a leaf receives of a Broadcast of ours. Its only root sends blocks of up to 64
// chunks to the subgroups by turns, so that a thread has a block to receive while the others' come;
// the last blocks of all are what waits at the end.
func root(s *sheet, c *chart.Chart, counts []float64) error {
	var pts []chart.Point
	for _, n := range counts {
		o, err := s.run(Case{
			Collective: "broadcast", Algorithm: Multicast, Bytes: 8 << 20, Subgroups: int(n), Net: datapaths[0].ours.net(int(n)),
		})
		if err != nil {
			return err
		}
		pts = append(pts, chart.Point{X: n, Y: o.Goodput * 1e9 / 8 / (1 << 30)})
	}
	c.Line("UD, a Broadcast of ours", pts)
	last := pts[len(pts)-1].Y
	of := 100 * last / linkGiB(packetBytes)
	s.claim("a Broadcast of ours with 16 UD threads", "the link's practical throughput", "%.0f %% of it",
		of).agrees(atLeast(90), of)
	s.says("gets %.0f %% of the link with them", of)
	return nil
}

// buffers shows the same over the size of the receive buffer (fig. 14).
func buffers(s *sheet) error {
	sizes := pick(s, doublings(64<<10, 8<<20), []float64{64 << 10, 8 << 20})
	for i := range datapaths {
		d := &datapaths[i].ours
		c := chart.New(d.name+" receive datapath, chunks of 4 KiB", "receive buffer", "GiB/s")
		c.LogX(chart.Size, sizes...)
		most := 0.0
		at := func(n int) func(float64) setting {
			return func(size float64) setting { return setting{n, int(size), packetBytes} }
		}
		for _, n := range []int{1, 2, 4, 8, 16} {
			pts, err := d.line(s, sizes, at(n), gib)
			if err != nil {
				return err
			}
			c.Line(fmt.Sprintf("threads: %d", n), pts)
			most = pts[len(pts)-1].Y
		}
		for _, n := range []int{1, 16} {
			pts, err := datapaths[i].paper.line(s, sizes, at(n), gib)
			if err != nil {
				return err
			}
			c.Claim(fmt.Sprintf("threads: %d, table I's instructions", n), pts...)
		}
		c.Level("link, 200 Gbit/s", sizes[0], sizes[len(sizes)-1], linkGiB(packetBytes))
		c.Y.Min, c.Y.Max = 0, 45
		s.chart(strings.ToLower(d.name), c)
		s.claim(d.name+" with the 16 threads of one core", "the link's practical throughput", "%.0f %% of it",
			100*most/linkGiB(packetBytes)).arithmetic()
	}
	return nil
}

// chunks shows what larger chunks spare a UC receiver (fig. 15): one completion for several packets.
func chunks(s *sheet) error {
	sizes := doublings(packetBytes, 64<<10)
	c := chart.New("UC receive datapath: 8 MiB in chunks of several packets", "chunk", "GiB/s")
	c.LogX(chart.Size, sizes...)
	d, paper := &datapaths[1].ours, &datapaths[1].paper
	first := map[int]float64{} // by threads: the chunk from which on the link is full
	at := func(n int) func(float64) setting {
		return func(chunk float64) setting { return setting{n, 8 << 20, int(chunk)} }
	}
	for _, n := range []int{1, 2, 4} {
		pts, err := d.line(s, sizes, at(n), gib)
		if err != nil {
			return err
		}
		c.Line(fmt.Sprintf("threads: %d", n), pts)
		first[n] = full(pts)
	}
	pts, err := paper.line(s, sizes, at(1), gib)
	if err != nil {
		return err
	}
	c.Claim("threads: 1, table I's instructions", pts...)
	c.Level("link, 200 Gbit/s", sizes[0], sizes[len(sizes)-1], linkGiB(packetBytes))
	c.Y.Min, c.Y.Max = 0, 45
	s.chart("", c)
	s.claim("UC with larger chunks", "line rate with fewer threads", "one thread from %s on, two from %s",
		chart.Size(first[1]), chart.Size(first[2])).arithmetic()
	return nil
}

// rate shows how many chunks of 64 bytes a second are received (fig. 16).
func rate(s *sheet) error {
	const wanted = 1600e9 / 8 / packetBytes / 1e6 // M/s: chunks of 4 KiB at 1.6 Tbit/s
	c := chart.New("Receive datapath, chunks of 64 bytes", "DPA threads", "million chunks a second")
	counts := doublings(1, 128)
	c.LogX(chart.Plain, counts...)
	bytes := pick(s, 8<<20, 256<<10)
	at := func(threads float64) setting { return setting{int(threads), bytes, 64} }
	for i := range datapaths {
		d, paper := &datapaths[i].ours, &datapaths[i].paper
		pts, err := d.line(s, counts, at, rateOf)
		if err != nil {
			return err
		}
		c.Line(d.name, pts)
		beside, err := paper.line(s, counts, at, rateOf)
		if err != nil {
			return err
		}
		c.Claim(paper.name, beside...)
		most := pts[len(pts)-1].Y
		s.claim(d.name+" with 128 threads", fmt.Sprintf("1.6 Tbit/s, %.1f M/s", wanted),
			"%.0f M/s, %.0f with the paper's instructions", most, beside[len(beside)-1].Y).arithmetic()
	}
	c.Level("1.6 Tbit/s in chunks of 4 KiB", 1, 128, wanted)
	c.Y.Min = 0
	s.chart("", c)
	return nil
}
