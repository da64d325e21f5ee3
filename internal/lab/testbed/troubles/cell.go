package troubles

import (
	"fmt"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/lab/chart"
)

// Cell is a size and a compute with which all troubles are tried. What a rank does too slowly is in proportion to them:
// 10 ms are no trouble to a layer that takes 500 ms to gather.
type Cell struct {
	Bytes   int           `json:"bytes"`   // of a rank's shard of a layer
	Compute time.Duration `json:"compute"` // of a layer's forward; 0: operations are back to back
}

// String names it, as in "1 MiB, 15ms".
func (c Cell) String() string { return fmt.Sprintf("%s, %v", chart.Size(float64(c.Bytes)), c.Compute) }

// gather is how long a layer's Allgather takes on a link of the testbed.
func (c Cell) gather() time.Duration {
	return time.Duration(float64(8*(Bed.Hosts-1)*c.Bytes) / Bed.Rate * float64(time.Second))
}

// layer is how long a layer's forward takes, and half of its backward, where all is well.
func (c Cell) layer() time.Duration { return max(c.gather(), c.Compute) }

// step is how long a step of so many layers takes where all is well.
func (c Cell) step(layers int) time.Duration { return time.Duration(3*layers) * c.layer() }

// plan is a training with steps of about a second, which may be longer, as a layer is gathered while another one
// computes.
func (c Cell) plan() Plan {
	const fewest, most = 2, 6
	layers := min(max(int(time.Second/max(c.step(1), 1)), fewest), most)
	return Plan{Layers: layers, Bytes: c.Bytes, Compute: c.Compute, Ahead: 1}
}

// watched is for how long a job of the cell is looked at: for some steps of the healthy one, and for least at least.
func (c Cell) watched(steps int, least time.Duration) time.Duration {
	return max(least, time.Duration(steps)*c.step(c.plan().Layers))
}

// The troubles that depend on the cell.

// a layer's backward takes no longer on the links
func (c Cell) slow(p *Plan) { p.Slow = 2 * c.layer() }
func (c Cell) late(p *Plan) { p.Load = loadEvery * c.step(p.Layers) / 2 } // half of the time that it loads for

// small cuts layers into so many messages that a network cannot carry them in time.
func (c Cell) small(p *Plan) {
	const layers = 100
	p.Layers, p.Bytes, p.Compute = layers, max(smallest, c.Bytes/512), c.Compute/layers
}

// busy gathers more layers at a time.
func (Cell) busy(p *Plan) { p.Ahead = 3 }
