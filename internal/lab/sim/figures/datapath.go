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

var datapaths = []datapath{{"UD", 113, 1084, 5.2}, {"UC", 66, 598, 11.9}}

// cost is how long a completion takes a thread where some are busy: its latency, which threads hide
// from each other, unless the instructions of all on its core take longer.
func (d *datapath) cost(threads int) time.Duration {
	cycles := max(d.cycles, d.instructions*float64(min(threads, dpaThreads)))
	return time.Duration(math.Round(cycles / dpaGHz))
}

// net joins two hosts, one of which receives with some threads.
func (d *datapath) net(threads int) network.Config {
	return network.Config{
		Tree: fattree.Config{Hosts: 2}, Gbps: dpaGbps, Latency: 500 * time.Nanosecond, Workers: threads, Cost: d.cost(threads),
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

// datapathRow is a point of fig. 13, 14 and 16.
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
	c := d.net(threads)
	row := datapathRow{Datapath: d.name, Threads: threads, Bytes: bytes, Chunk: chunk, CostNS: int64(c.Cost)}
	c.MTU = chunk + network.Header
	net, err := network.New(c, s.Seed)
	if err != nil {
		return row, err
	}
	r := &stream{chunks: bytes / chunk, net: net}
	net.Attach(1, r)
	for i := range r.chunks {
		p := net.Packet()
		p.From, p.To, p.Group, p.Bytes = 0, 1, int32(i), int32(chunk)
		net.Send(p)
	}
	for net.Step() {
	}
	if r.chunks != 0 {
		return row, fmt.Errorf("%d chunks did not arrive", r.chunks)
	}
	row.GiB = float64(bytes) / (1 << 30) / r.last.Seconds()
	row.Rate = float64(bytes/chunk) / micros(r.last)
	s.row(row)
	return row, nil
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
	for i := range datapaths {
		d := &datapaths[i]
		var pts []chart.Point
		first := 0.0 // threads from which on the link is full
		for _, n := range counts {
			o, err := d.receive(s, int(n), 8<<20, packetBytes)
			if err != nil {
				return err
			}
			pts = append(pts, chart.Point{X: n, Y: o.GiB})
			if first == 0 && o.GiB > 0.95*linkGiB(packetBytes) {
				first = n
			}
		}
		c.Line(d.name, pts)
		c.Level("table I: one "+d.name+" thread", 1, 16, d.gib)
		one := pts[0].Y
		s.claim("one "+d.name+" thread", fmt.Sprintf("%.1f GiB/s", d.gib), fmt.Sprintf("%.1f GiB/s from its cycles at %.1f GHz", one, dpaGHz), math.Abs(one/d.gib-1) < 0.1)
		paper, fits := "4 threads", first > 2 && first <= 4
		if d.name == "UD" {
			paper, fits = "8 to 16 threads", first >= 8 && first <= 16
		}
		s.claim(d.name+" fills 200 Gbit/s with", paper, fmt.Sprintf("%.0f threads", first), fits)
	}
	if err := root(s, c, counts); err != nil {
		return err
	}
	c.Level("link, 200 Gbit/s", 1, 16, linkGiB(packetBytes))
	c.Y.Min, c.Y.Max = 0, 46
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
			Collective: "broadcast", Algorithm: Multicast, Bytes: 8 << 20, Subgroups: int(n), Net: datapaths[0].net(int(n)),
		})
		if err != nil {
			return err
		}
		pts = append(pts, chart.Point{X: n, Y: o.Goodput * 1e9 / 8 / (1 << 30)})
	}
	c.Line("UD, a Broadcast of ours", pts)
	last := pts[len(pts)-1].Y
	s.claim("a Broadcast of ours with 16 UD threads", "the link's practical throughput", fmt.Sprintf("%.0f %% of it", 100*last/linkGiB(packetBytes)), last > 0.9*linkGiB(packetBytes))
	return nil
}

// buffers shows the same over the size of the receive buffer (fig. 14).
func buffers(s *sheet) error {
	sizes := pick(s, doublings(64<<10, 8<<20), []float64{64 << 10, 8 << 20})
	for i := range datapaths {
		d := &datapaths[i]
		c := chart.New(d.name+" receive datapath, chunks of 4 KiB", "receive buffer", "GiB/s")
		c.LogX(chart.Size, sizes...)
		full := 0.0
		for _, n := range []int{1, 2, 4, 8, 16} {
			var pts []chart.Point
			for _, size := range sizes {
				o, err := d.receive(s, n, int(size), packetBytes)
				if err != nil {
					return err
				}
				pts = append(pts, chart.Point{X: size, Y: o.GiB})
				full = o.GiB
			}
			c.Line(fmt.Sprintf("threads: %d", n), pts)
		}
		c.Level("link, 200 Gbit/s", sizes[0], sizes[len(sizes)-1], linkGiB(packetBytes))
		c.Y.Min, c.Y.Max = 0, 45
		s.chart(strings.ToLower(d.name), c)
		s.claim(d.name+" with the 16 threads of one core", "the link's practical throughput", fmt.Sprintf("%.0f %% of it", 100*full/linkGiB(packetBytes)), full > 0.9*linkGiB(packetBytes))
	}
	return nil
}

// rate shows how many chunks of 64 bytes a second are received (fig. 16).
func rate(s *sheet) error {
	const wanted = 1600e9 / 8 / packetBytes / 1e6 // M/s: chunks of 4 KiB at 1.6 Tbit/s
	c := chart.New("Receive datapath, chunks of 64 bytes", "DPA threads", "million chunks a second")
	counts := doublings(1, 128)
	c.LogX(chart.Plain, counts...)
	bytes := pick(s, 8<<20, 256<<10)
	for i := range datapaths {
		d := &datapaths[i]
		var pts []chart.Point
		for _, n := range counts {
			o, err := d.receive(s, int(n), bytes, 64)
			if err != nil {
				return err
			}
			pts = append(pts, chart.Point{X: n, Y: o.Rate})
		}
		c.Line(d.name, pts)
		last := pts[len(pts)-1].Y
		s.claim(d.name+" with 128 threads", fmt.Sprintf("1.6 Tbit/s, %.1f M/s", wanted), fmt.Sprintf("%.0f M/s", last), last >= wanted)
	}
	c.Level("1.6 Tbit/s in chunks of 4 KiB", 1, 128, wanted)
	c.Y.Min = 0
	s.chart("", c)
	return nil
}
