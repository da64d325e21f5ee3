package figures

import (
	"fmt"
	"math"

	"gonum.org/v1/plot"

	"github.com/torch-mcast/torch-mcast/internal/lab/chart"
)

// transportRow is what a transport takes to receive, in chunks of one size.
type transportRow struct {
	Transport    string  `json:"transport"`
	Chunk        int     `json:"chunk"`                // bytes that complete at once
	Instructions float64 `json:"instructions_per_gib"` // of our receive kernel
	Loss         float64 `json:"loss,omitempty"`       // of packets; 0: the row is not about it
	Again        float64 `json:"fetched_again"`        // the share of bytes, chunks being lost as a whole
}

// again is the share of chunks of some bytes that lack a packet, where packets are lost one by one.
func again(chunk int, loss float64) float64 {
	return -math.Expm1(float64(chunk/packetBytes) * math.Log1p(-loss))
}

// perGiB is how many instructions a GiB takes in chunks of some bytes.
func (d *datapath) perGiB(chunk int) float64 { return d.instructions * (1 << 30) / float64(chunk) }

// transports compares multicast over UC with multicast over UD (fig. 4): UC takes software a message, which may
// have many packets and needs no copy, UD takes it a packet; but a message of UC is lost with any of its packets.
func transports(s *sheet) error {
	ud, uc := &datapaths[0].ours, &datapaths[1].ours
	sizes := doublings(packetBytes, 64<<10)
	largest := int(sizes[len(sizes)-1])
	work := chart.New("Receive kernel: instructions for a GiB", "chunk", "million instructions")
	work.LogX(chart.Size, sizes...)
	var perPacket, perMessage []chart.Point
	for _, size := range sizes {
		row := transportRow{Transport: uc.name, Chunk: int(size), Instructions: uc.perGiB(int(size))}
		if err := s.row(row); err != nil {
			return err
		}
		perMessage = append(perMessage, chart.Point{X: size, Y: row.Instructions / 1e6})
		perPacket = append(perPacket, chart.Point{X: size, Y: ud.perGiB(packetBytes) / 1e6})
	}
	if err := s.row(transportRow{
		Transport: ud.name, Chunk: packetBytes, Instructions: ud.perGiB(packetBytes),
	}); err != nil {
		return err
	}
	work.Line("UD, a chunk is a packet of 4 KiB and is copied", perPacket)
	work.Line("UC, a chunk is a message", perMessage)
	work.Y.Min, work.Y.Max = 0, 35
	s.chart("instructions", work)

	losses := []float64{1e-6, 1e-5, 1e-4, 1e-3, 1e-2}
	lost := chart.New("Fetched again where packets of 4 KiB are lost", "loss of packets", "bytes, % of what is received")
	lost.LogX(chart.Percent, losses...)
	for _, d := range []struct {
		*datapath
		chunk int
	}{{ud, packetBytes}, {uc, 16 << 10}, {uc, largest}} {
		var pts []chart.Point
		for _, p := range losses {
			row := transportRow{
				Transport: d.name, Chunk: d.chunk, Instructions: d.perGiB(d.chunk), Loss: p, Again: again(d.chunk, p),
			}
			if err := s.row(row); err != nil {
				return err
			}
			pts = append(pts, chart.Point{X: p, Y: 100 * row.Again})
		}
		lost.Line(fmt.Sprintf("%s, chunks of %s", d.name, chart.Size(float64(d.chunk))), pts)
	}
	ticks := []float64{1e-4, 1e-3, 1e-2, 0.1, 1, 10}
	lost.Y.Scale, lost.Y.Tick.Marker = plot.LogScale{}, chart.TicksAt(chart.Plain, ticks)
	lost.Y.Min, lost.Y.Max = 5e-5, 200
	s.chart("loss", lost)

	least, most := uc.perGiB(largest), ud.perGiB(packetBytes)
	s.claim("software over UD, and over UC with messages of "+chart.Size(float64(largest)),
		"for each datagram, for each message",
		"%.1f and %.1f million instructions a GiB", most/1e6, least/1e6).arithmetic()
	copying := func(uc, ud *datapath) float64 { return ud.instructions - uc.instructions }
	ours, theirs := copying(uc, ud), copying(&datapaths[1].paper, &datapaths[0].paper)
	s.claim("instructions that UC spares a packet, as it stages no copy", "66 instead of 113, so 47",
		"%.0f instead of %.0f, so %.0f", uc.instructions, ud.instructions, ours).
		agrees(near(theirs), ours)
	s.says("UC spares %.0f instructions a packet, the paper's %.0f", ours, theirs)
	const p = 1e-4
	s.claim("fetched again over UC and UD, 0.01 % of packets lost", "the entire message is dropped",
		"%.2f and %.2f %%, messages of %s", 100*again(largest, p), 100*again(packetBytes, p),
		chart.Size(float64(largest))).arithmetic()
	return nil
}
