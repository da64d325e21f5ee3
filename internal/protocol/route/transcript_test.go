package route

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/lab/transcript"
)

// TestTranscripts runs the scripts in testdata and compares what happens, line by line. A line that starts with "> " is
// a command; the lines until the next command are its effects: when, at which rank, an event ("<-") or an order.
// Messages take a millisecond.
//
//	> new ranks=3 switches=2   first command
//	> start 0 2                these ranks post their first operation; without numbers all
//	> run 5s                   let time pass
//	> down 0 | up 0            switch 0 ends, or begins
//	> break 1 0 | mend 1 0     datagrams between rank 1 and switch 0 pass no more, or again
//	> cut 1 0                  the session of rank 1 with switch 0 breaks
//	> mismatch 1 TEXT          rank 1 hears from its switch that ranks disagree
//	> reduce                   an operation goes through the switch, if all ranks are at it
func TestTranscripts(t *testing.T) {
	transcript.Test(t, func(t *testing.T, out *strings.Builder) func(string) {
		var w *world
		return func(command string) {
			words := strings.Fields(command)
			if words[0] != "new" {
				w.do(t, words)
				return
			}
			ranks, switches := 0, 0
			_, err := fmt.Sscanf(command, "new ranks=%d switches=%d", &ranks, &switches)
			require.NoError(t, err)
			w = newWorld(t, ranks, switches, func() time.Duration { return time.Millisecond }, func(format string, args ...any) {
				fmt.Fprintf(out, "%.3f %s\n", w.now.Seconds(), fmt.Sprintf(format, args...))
			})
		}
	})
}

// do runs one command.
func (w *world) do(t *testing.T, words []string) {
	number := func(i int) int {
		n, err := strconv.Atoi(words[i])
		require.NoError(t, err)
		return n
	}
	switch words[0] {
	case "start":
		for i, r := range w.ranks {
			for at := 1; at < len(words); at++ {
				if i = number(at); i == r.number {
					break
				}
			}
			if i == r.number {
				r.handle(Started{})
			}
		}
	case "run":
		d, err := time.ParseDuration(words[1])
		require.NoError(t, err)
		w.run(d)
	case "down", "up":
		w.switches[number(1)].turn(words[0] == "up")
	case "break", "mend":
		w.ranks[number(1)].breakPath(w.switches[number(2)], words[0] == "break")
	case "cut":
		w.ranks[number(1)].cut(w.switches[number(2)])
	case "mismatch":
		r := w.ranks[number(1)]
		r.lose(r.using.sessions[r.number], Lost{r.using.epoch, strings.Join(words[2:], " "), true})
	case "reduce":
		w.log("through the switch: %t", w.reduce())
	default:
		t.Fatalf("unknown command %q", words[0])
	}
}
