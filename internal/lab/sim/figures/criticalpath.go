package figures

import (
	"fmt"
	"strconv"

	"github.com/torch-mcast/torch-mcast/internal/lab/chart"
)

// criticalPath shows where the time of an Allgather goes, over nodes and sizes (fig. 10).
func criticalPath(s *sheet) error {
	names := []string{"multicast", "barrier", "handshake"}
	share := func(nodes, bytes int) ([3]float64, error) {
		o, err := s.run(Case{
			Collective: "allgather", Algorithm: Multicast, Bytes: bytes, Net: testbed(nodes), Iterations: 3, Trace: true,
		})
		total := (o.Share.Barrier + o.Share.Multicast + o.Share.Handshake) / 100
		return [3]float64{o.Share.Multicast / total, o.Share.Barrier / total, o.Share.Handshake / total}, err
	}
	draw := func(suffix, title, x string, labels []string, shares [][3]float64) {
		values := make([][]float64, len(names))
		for _, one := range shares {
			for i, v := range one {
				values[i] = append(values[i], v)
			}
		}
		c := chart.New(title, x, "share of the time, %")
		c.Stack(labels, names, values)
		c.Level("the paper: 99 % multicast", -0.5, float64(len(labels))-0.5, 99)
		c.Y.Min, c.Y.Max = 0, 135
		c.Y.Tick.Marker = chart.TicksAt(chart.Plain, []float64{0, 20, 40, 60, 80, 100})
		s.chart(suffix, c)
	}

	var labels []string
	var shares [][3]float64
	at := map[int]float64{}
	const bytes = 256 << 10
	for _, nodes := range pick(s, []int{2, 4, 8, 16, 32, 64, 128, testbedNodes}, []int{2, 16}) {
		one, err := share(nodes, bytes)
		if err != nil {
			return err
		}
		at[nodes] = one[0]
		labels, shares = append(labels, strconv.Itoa(nodes)), append(shares, one)
	}
	draw("nodes", "Allgather of 256 KiB a rank: where a rank's time goes", "nodes", labels, shares)

	labels, shares = nil, nil
	most := pick(s, testbedNodes, 16)
	var small float64
	for _, n := range pick(s, []int{4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20}, []int{4 << 10, 64 << 10}) {
		one, err := share(most, n)
		if err != nil {
			return err
		}
		if small == 0 {
			small = one[0]
		}
		labels, shares = append(labels, chart.Size(float64(n))), append(shares, one)
	}
	draw("sizes", fmt.Sprintf("Allgather on %d nodes: where a rank's time goes", most), "bytes a rank", labels, shares)
	rounds := atLeast(98.5) // what rounds to 99 %, or more
	s.claim("share of multicast in the time, 16 nodes, 256 KiB", "99 % (size not given)", "%.1f %%", at[16]).agrees(rounds,
		at[16])
	if !s.Quick {
		s.claim("share of multicast in the time, 188 nodes, 256 KiB", "99 %", "%.1f %%", at[testbedNodes]).agrees(rounds,
			at[testbedNodes])
		s.says("%.1f %% at 16 nodes, %.1f %% at %d, %.1f %% there with 4 KiB", at[16], at[testbedNodes], testbedNodes, small)
	}
	s.claim(fmt.Sprintf("%d nodes, 4 KiB", most), "99 %", "%.1f %%", small).agrees(rounds, small)
	return nil
}
