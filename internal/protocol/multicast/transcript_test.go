package multicast

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/lab/transcript"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// TestTranscripts runs the scripts in testdata and compares what happens, line by line. A line that starts with "> " is
// a command; the lines until the next command are its effects.
//
//	> new ranks=3 chunk=4 window=8 ...    first command: the communicator
//	> post allgather bytes=8 [root=0] [sync] [at=0,2]
//	> lose 0.1@2 ...   the chunk of root 0, PSN 1, is lost on its way to rank 2; @* to all
//	> lose all | lose none
//	> run              deliver until nothing is under way
//	> tick 5ms         let time pass, and deliver
//	> fail 1 TEXT      rank 1 is told to fail
//	> stats
func TestTranscripts(t *testing.T) {
	thorough(t)
	transcript.Test(t, func(t *testing.T, out *strings.Builder) func(string) {
		var n *net
		return func(command string) {
			words := strings.Fields(command)
			if words[0] == "new" {
				n = newNet(configOf(t, words[1:]))
				return
			}
			n.log.Reset()
			n.do(t, words)
			out.WriteString(n.log.String())
		}
	})
}

// do runs one command.
func (n *net) do(t *testing.T, words []string) {
	switch words[0] {
	case "post":
		o, ranks := n.opOf(t, words[1:])
		_ = n.post(o, ranks...) // an error is part of the transcript
	case "lose":
		n.lose = losses(words[1:])
	case "run":
		n.run()
	case "tick":
		d, err := time.ParseDuration(words[1])
		require.NoError(t, err)
		n.tick(d)
	case "fail":
		r := number(t, words[1])
		n.comms[r].Fail(fmt.Errorf("%s", strings.Join(words[2:], " ")))
		n.drive(r)
	case "stats":
		for r, c := range n.comms {
			n.logf("%d%s", r, counted(c.Stats()))
		}
	default:
		t.Fatalf("unknown command %q", words[0])
	}
}

// counted names the counters that are not 0, so that a new one changes no transcript in which it
// counts nothing.
func counted(s Stats) (text string) {
	v := reflect.ValueOf(s)
	for i := range v.NumField() {
		if f := v.Field(i); !f.IsZero() {
			text += fmt.Sprintf(" %s:%v", v.Type().Field(i).Name, f)
		}
	}
	return text
}

// losses returns what loses the named chunks.
func losses(names []string) func(packet) bool {
	return func(p packet) bool {
		for _, w := range names {
			chunk := fmt.Sprintf("%d.%d@", p.data.Root, p.data.PSN)
			if w == "all" || w == chunk+"*" || w == chunk+strconv.Itoa(p.to) {
				return true
			}
		}
		return false
	}
}

func configOf(t *testing.T, words []string) Config {
	c := Config{Chains: 1, Subgroups: 1, Cutoff: time.Millisecond}
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "ranks":
			c.Size = number(t, value)
		case "chunk":
			c.Chunk = number(t, value)
		case "window":
			c.Window = number(t, value)
		case "chains":
			c.Chains = number(t, value)
		case "subgroups":
			c.Subgroups = number(t, value)
		case "eager":
			c.Eager = number(t, value)
			c.Arena, c.EagerChunks = 4*c.Eager, 64
		case "lossless":
			c.Lossless = true
		default:
			t.Fatalf("unknown setting %q", w)
		}
	}
	return c
}

func (n *net) opOf(t *testing.T, words []string) (Op, []int) {
	o, ranks := Op{}, n.all()
	switch words[0] {
	case "allgather":
		o.Collective = wire.Allgather
	case "broadcast":
		o.Collective = wire.Broadcast
	case "barrier":
		o.Collective = wire.Barrier
	}
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "bytes":
			o.Bytes = number(t, value)
		case "root":
			o.Root = number(t, value)
		case "sync":
			o.Sync = true
		case "at":
			ranks = nil
			for _, r := range strings.Split(value, ",") {
				ranks = append(ranks, number(t, r))
			}
		default:
			t.Fatalf("unknown argument %q", w)
		}
	}
	return o, ranks
}

func number(t *testing.T, s string) int {
	n, err := strconv.Atoi(s)
	require.NoError(t, err)
	return n
}
