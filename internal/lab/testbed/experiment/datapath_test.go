package experiment

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
)

// A GB in a second of core time is a GB/s of a core, however long the operation takes.
func TestDatapathRows(t *testing.T) {
	r := rowAt(ours, "broadcast", 2, 1e9, 4e6)
	r.CPU, r.Receiver = 3, 2
	row := broadcastRow(r, batch.OffloadGSO, 1<<10)
	require.Equal(t, []float64{0.25, 0.5, 1, 0.5}, []float64{row.Rate, row.PerCore, row.Sender, row.Share})
	require.Zero(t, broadcastRow(rowAt(ours, "broadcast", 2, 1e9, 0), batch.OffloadGSO, 1<<10).PerCore,
		"what was not measured")

	bare := datapathRow{Row: Row{Bytes: 1e9}}
	bare.drained(time.Second, 3*time.Second)
	bare.drained(time.Second, time.Second)
	bare.drained(time.Second, 2*time.Second)
	require.Equal(t, []float64{0.5, 1, 0}, []float64{bare.PerCore, bare.Sender, bare.Share}, "medians")
}

func TestDatapathResults(t *testing.T) {
	l := &lab{ctx: t.Context(), name: "x"}
	var rows []datapathRow
	for i, chunk := range chunks {
		for _, o := range offloads {
			r := rowAt(ours, "broadcast", 2, 64<<20, 1e5)
			r.CPU, r.Receiver = 0.1, 0.05
			rows = append(rows, broadcastRow(r, o, chunk))
			bare := datapathRow{Row: Row{Peer: alone, Bytes: 64 << 20}, Offload: o.String(), Chunk: chunk}
			bare.drained(time.Millisecond, time.Duration(20-5*i)*time.Millisecond/10)
			rows = append(rows, bare)
		}
	}
	l.datapathResults(rows, 12)
	require.Equal(t, []bool{true, false}, []bool{l.goals[0].Met, l.goals[1].Met})
	require.Equal(t, []string{"mcast", "gso", "1 KiB", "0.671", "50.0 %", "1.34", "1.34", "0.0 %"}, l.tables[0].lines[1])
	_, plots := written(t, l)
	require.Len(t, plots, 1)
}

// All datagrams arrive, however they pass the kernel and if the last one is short, and each half
// takes time of a core.
func TestDrain(t *testing.T) {
	l, err := newLab(t.Context(), "drain", Options{Programs: build(t)})
	require.NoError(t, err)
	defer func() { require.NoError(t, l.close()) }()
	tb, err := l.bed(testbed.Spec{Hosts: 2})
	require.NoError(t, err)
	on, err := twoCores()
	require.NoError(t, err)
	source := randomBytes(8<<20 + 100)
	for _, o := range []batch.Offload{batch.OffloadGSO, batch.OffloadBatch, batch.OffloadSingle} {
		dest := make([]byte, len(source))
		row := datapathRow{Row: Row{Bytes: len(source)}, Chunk: 4 << 10}
		require.NoError(t, row.drain(tb, on, o, source, dest))
		require.Equal(t, source, dest)
		require.Positive(t, row.PerCore)
		require.Positive(t, row.Sender)
	}
	// Somebody else's datagram is in the way.
	d, err := newDrain(tb, batch.OffloadBatch, 4<<10, source, make([]byte, len(source)))
	require.NoError(t, err)
	require.NoError(t, d.send([][]byte{make([]byte, 4<<10)}))
	require.EqualError(t, onCores(tb, func() error { return d.run(on.sending, on.receiving) }),
		"what came was not sent here")
	require.NoError(t, d.close())
}

func TestDatapathExperiment(t *testing.T) {
	o := Options{Dir: t.TempDir(), Bytes: []int{1 << 20}, Rounds: 1, Programs: build(t), Repository: "../../../.."}
	e, err := Find([]string{"datapath"})
	require.NoError(t, err)
	require.NoError(t, e[0].Run(t.Context(), o))
	requireNoBed(t)
	requireDrawn(t, filepath.Join(o.Dir, "datapath.svg"))
	text, err := os.ReadFile(filepath.Join(o.Dir, "datapath.ndjson"))
	require.NoError(t, err)
	seen := map[string]int{}
	for line := range strings.Lines(string(text)) {
		var r datapathRow
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		if r.Chunk == 0 {
			continue // a goal
		}
		seen[r.Peer]++
		require.Positive(t, r.PerCore, line)
		require.Positive(t, r.OfCopy)
		require.Equal(t, r.Peer == ours, r.Rate > 0)
		require.NotEmpty(t, r.Date)
	}
	require.Equal(t, map[string]int{ours: len(offloads) * len(chunks), alone: len(offloads) * len(chunks)}, seen)

	o.MTU = 1500
	require.ErrorContains(t, e[0].Run(t.Context(), o), "MTU 1500: want at least 8292")
}
