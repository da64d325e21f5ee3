package experiment

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	"gonum.org/v1/plot"

	"github.com/torch-mcast/torch-mcast/internal/lab/chart"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
)

// datapathRow is what a core takes in of datagrams of one size: of a Broadcast, or of datagrams alone.
type datapathRow struct {
	Row
	Offload string  `json:"offload"`
	Chunk   int     `json:"chunk"`               // payload of a datagram
	Rate    float64 `json:"GBps"`                // bytes over the time; only of a Broadcast
	PerCore float64 `json:"receiver_core_GBps"`  // bytes over the core time of the receiver
	Sender  float64 `json:"sender_core_GBps"`    // bytes over the sender's core time, up to the receiver's socket
	Share   float64 `json:"receiver_core_share"` // of the time, for which the receiver has its core; 0: not known
	OfCopy  float64 `json:"of_copy"`             // PerCore to what the core copies in the same time
}

// alone is the peer that is no protocol.
const alone = "datagrams"

// paperLink is the link of the paper's fig. 5, 200 Gbit/s, in GB/s.
const paperLink = 25.0

// offloads are how datagrams pass the kernel: up to 64 KiB of them as one, or each by itself.
var offloads = []batch.Offload{batch.OffloadGSO, batch.OffloadBatch}

// chunks are the sizes of payloads. The largest is what links of 9000 bytes take.
var chunks = []int{1 << 10, 2 << 10, 4 << 10, 8 << 10}

// cores are those of the sender and the receiver.
type cores struct{ sending, receiving int }

// twoCores returns the first two that this process may run on.
func twoCores() (c cores, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return c, err
	}
	var all []int
	for core := 0; len(all) < min(2, set.Count()); core++ {
		if set.IsSet(core) {
			all = append(all, core)
		}
	}
	if len(all) < 2 {
		return c, errors.New("one core: want two, for the sender and for the receiver")
	}
	return cores{all[0], all[1]}, nil
}

// datapath measures what one core receives, on links without limit.
func datapath(l *lab) error {
	on, err := twoCores()
	if err != nil {
		return err
	}
	if least := chunks[len(chunks)-1] + 100; l.MTU < least {
		return fmt.Errorf("MTU %d: want at least %d, so that the largest datagrams pass", l.MTU, least)
	}
	n := or(l.Bytes, 64<<20)[0]
	tb, err := l.bed(testbed.Spec{Hosts: 2})
	if err != nil {
		return err
	}
	var works []work
	for _, o := range offloads {
		for _, chunk := range chunks {
			works = append(works, work{
				peer: ours, variant: o.String(), collective: "broadcast", bytes: []int{n}, iters: 3, warmup: 1,
				cores: map[int]int{0: on.sending, 1: on.receiving},
				env:   []string{"MCAST_OFFLOAD=" + o.String(), fmt.Sprintf("MCAST_CHUNK=%d", chunk)},
			})
		}
	}
	l.expect((len(works) + 1) * l.Rounds) // and datagrams alone
	var rows []datapathRow
	if slices.Contains(l.peers(ours), ours) {
		found, err := l.compare(tb, works...)
		if err != nil {
			return err
		}
		for i, r := range found {
			rows = append(rows, broadcastRow(r, offloads[i/len(chunks)], chunks[i%len(chunks)]))
		}
	}
	bare, copied, err := l.drains(tb, on, n)
	if err != nil {
		return err
	}
	rows = append(rows, bare...)
	for i := range rows {
		rows[i].OfCopy = fraction(rows[i].PerCore, copied)
		l.row(rows[i])
	}
	if len(rows) > 0 {
		l.datapathResults(rows, copied)
	}
	return nil
}

// gigabytes is bytes over a time in seconds, in GB/s; 0 where nothing was measured.
func gigabytes(bytes int, seconds float64) float64 {
	return fraction(float64(bytes)/1e9, seconds)
}

func broadcastRow(r Row, o batch.Offload, chunk int) datapathRow {
	return datapathRow{
		Row: r, Offload: o.String(), Chunk: chunk, Rate: gigabytes(r.Bytes, r.TimeUS/1e6),
		PerCore: gigabytes(r.Bytes, r.Receiver),
		Sender:  gigabytes(r.Bytes, r.CPU-r.Receiver), Share: fraction(r.Receiver*1e6, r.TimeUS),
	}
}

// drains measures datagrams alone, and in GB/s how fast the receiver's core copies as many bytes.
func (l *lab) drains(tb *testbed.Testbed, on cores, n int) (rows []datapathRow, copied float64, err error) {
	source, dest := randomBytes(n), make([]byte, n)
	var copies []float64
	for round := range l.Rounds {
		l.step("round %d of %d: datagrams alone", round+1, l.Rounds)
		err := onCores(tb, func() error {
			took, err := copyTime(on.receiving, source, dest)
			copies = append(copies, took.Seconds())
			return err
		})
		for i := 0; i < len(offloads)*len(chunks) && err == nil && !l.stopped(); i++ {
			o, chunk := offloads[i/len(chunks)], chunks[i%len(chunks)]
			if round == 0 {
				rows = append(rows, datapathRow{
					Row:     Row{Setting: l.setting(0), Peer: alone, Variant: o.String(), Collective: "receive", Bytes: n, Iters: 1},
					Offload: o.String(), Chunk: chunk,
				})
			}
			if err = rows[i].drain(tb, on, o, source, dest); err != nil {
				err = fmt.Errorf("datagrams of %d bytes, %v: %w", chunk, o, err)
			}
			l.kept.add(rows[i])
		}
		if err != nil {
			return nil, 0, err
		}
		if l.stopped() {
			break
		}
		l.over(1)
	}
	return rows, gigabytes(n, median(copies)), nil
}

// onCores calls f on a thread that may change cores, and ends.
func onCores(tb *testbed.Testbed, f func() error) error { return tb.In(tb.Hosts()[0].Namespace, f) }

// drain measures a round of datagrams alone.
func (r *datapathRow) drain(tb *testbed.Testbed, on cores, o batch.Offload, source, dest []byte) error {
	d, err := newDrain(tb, o, r.Chunk, source, dest)
	if err != nil {
		return err
	}
	err = onCores(tb, func() error { return d.run(on.sending, on.receiving) })
	if err := errors.Join(err, d.close()); err != nil {
		return err
	}
	r.drained(d.sendTime, d.receiveTime)
	return nil
}

// drained adds a round of datagrams alone.
func (r *datapathRow) drained(sent, received time.Duration) {
	r.RoundsCPU = append(r.RoundsCPU, (sent + received).Seconds())
	r.CPU = median(r.RoundsCPU)
	r.RoundsReceiver = append(r.RoundsReceiver, received.Seconds())
	r.Receiver = median(r.RoundsReceiver)
	r.PerCore, r.Sender = gigabytes(r.Bytes, r.Receiver), gigabytes(r.Bytes, r.CPU-r.Receiver)
}

// datapathResults shows what came out, beside what the receiver's core copies, in GB/s.
func (l *lab) datapathResults(rows []datapathRow, copied float64) {
	t := l.table(fmt.Sprintf("Broadcast of %s from one core to another and datagrams alone, links without limit: GB/s",
		chart.Size(float64(rows[0].Bytes))),
		"what", "offload", "chunk", "GB/s", "receiver has its core", "a core receives", "a core sends", "received, of a copy")
	most := map[string]float64{}
	for _, r := range rows {
		rate, share := "", ""
		if r.Rate > 0 {
			rate, share = number(r.Rate), percent(r.Share)
		}
		t.row(r.Peer, r.Offload, chart.Size(float64(r.Chunk)), rate, share, number(r.PerCore), number(r.Sender),
			percent(r.OfCopy))
		most[r.Peer] = max(most[r.Peer], r.PerCore)
	}
	for _, p := range []string{ours, alone} {
		if most[p] > 0 {
			l.goal("the most that a core receives, "+datapathName(p),
				fmt.Sprintf("less than a link of 200 Gbit/s, %g GB/s", paperLink),
				number(most[p])+" GB/s", most[p] < paperLink)
		}
	}
	l.remark("A receiver of a Broadcast that waits looks for datagrams for a while before it sleeps, and that time is " +
		"included: the true rate is at least this.")
	l.remark("The receiver's core copies %s GB/s. What the kernel does for a datagram up to the receiver's socket it "+
		"does on the sender's core; where that is the receiver's, too, it receives less.", number(copied))
	if !l.stopped() {
		l.chart("", datapathChart(rows, copied))
	}
}

func datapathName(peer string) string {
	if peer == alone {
		return "datagrams alone"
	}
	return "a Broadcast"
}

// datapathChart draws what a core receives by the size of datagrams, on a logarithmic axis.
func datapathChart(rows []datapathRow, copied float64) *chart.Chart {
	c := chart.New("What one core receives of "+chart.Size(float64(rows[0].Bytes)), "payload of a datagram", "GB/s")
	x := floats(chunks)
	c.LogX(chart.Size, x...)
	for _, p := range []string{ours, alone} {
		for _, o := range offloads {
			var pts []chart.Point
			for _, r := range rows {
				if r.Peer == p && r.Offload == o.String() && r.PerCore > 0 {
					pts = append(pts, chart.Point{X: float64(r.Chunk), Y: r.PerCore})
				}
			}
			if len(pts) == 0 {
				continue
			}
			how := "without"
			if o == batch.OffloadGSO {
				how = "UDP GSO and GRO"
			}
			c.Line(datapathName(p)+", "+how, pts)
		}
	}
	c.Level("a link of 200 Gbit/s", x[0], x[len(x)-1], paperLink)
	c.Level("what the core copies", x[0], x[len(x)-1], copied)
	c.Y.Scale, c.Y.Tick.Marker = plot.LogScale{}, chart.TicksAt(chart.Plain, []float64{0.1, 0.2, 0.5, 1, 2, 5, 10, 20})
	c.Y.Min, c.Y.Max = 0.1, 1000
	c.X.Min, c.X.Max = x[0]/1.1, x[len(x)-1]*1.1
	return c
}
