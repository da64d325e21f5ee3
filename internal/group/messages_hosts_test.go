package group

import (
	"bytes"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// messageBytes are what a rank sends to another one, of each size.
func messageBytes(from, to int) (all [][]byte) {
	for i, n := range messageSizes {
		b := make([]byte, n)
		fill(b, from*1000+to*100+i)
		all = append(all, b)
	}
	return all
}

// allMessages has each rank send to each other one, with tags and then by all-to-all. It checks every byte.
func allMessages(g *Group, rank int) error {
	var works []*Work
	var send, want []byte
	got, sizes := make([][][]byte, g.Size()), make([]int, g.Size())
	for peer := range g.Size() {
		out, in := messageBytes(rank, peer), messageBytes(peer, rank)
		got[peer] = in
		b := bytes.Join(in, nil)
		send, want, sizes[peer] = append(send, bytes.Join(out, nil)...), append(want, b...), len(b)
		for i := range out {
			if peer == rank {
				continue
			}
			got[peer][i] = make([]byte, len(in[i]))
			r, err := g.StartReceive(got[peer][i], peer, uint64(i))
			if err != nil {
				return err
			}
			s, err := g.StartSend(out[i], peer, uint64(i))
			if err != nil {
				return err
			}
			works = append(works, r.Work, s.Work)
		}
	}
	recv := make([]byte, len(want))
	all, err := g.StartAllToAll(send, recv, sizes, sizes)
	if err != nil {
		return err
	}
	for _, w := range append(works, all) {
		if err := w.WaitUntil(time.Time{}); err != nil {
			return err
		}
	}
	for peer := range got {
		got[peer] = [][]byte{bytes.Join(got[peer], nil)}
	}
	if !bytes.Equal(recv, want) || !bytes.Equal(bytes.Join(slices.Concat(got...), nil), want) {
		return fmt.Errorf("rank %d has received the wrong bytes", rank)
	}
	return nil
}

// receiveAny waits for a message that nobody sends.
func receiveAny(g *Group, _ int) error {
	w, err := g.StartReceive(make([]byte, 1<<20), AnySource, 99)
	if err != nil {
		return err
	}
	return w.WaitUntil(time.Time{})
}

// TestMessagesOfTwoHosts: with several ranks a host, what they send to each other goes through the host's memory, and
// the rest over the network.
func TestMessagesOfTwoHosts(t *testing.T) {
	pair := 0 // bytes from one rank to another one
	for _, n := range messageSizes {
		pair += 2 * n
	}
	for name, row := range map[string]struct {
		ranks  int
		secret string
	}{"2 and 2": {4, ""}, "3 and 2": {5, ""}, "2 and 1": {3, ""}, "encrypted": {4, secret}} {
		t.Run(name, func(t *testing.T) {
			p := startRoles(t, hostRole{
				Size: row.ranks, Family: "4", Timeout: systest.Limit, Fabric: "auto", Secret: row.secret,
			}, nil)
			for _, r := range p.reports(t) {
				require.Empty(t, r.Error)
			}
			p.begin(t, "messages")
			for rank, r := range p.reports(t) {
				require.Empty(t, r.Error)
				near := (row.ranks+1-rank%2)/2 - 1 // other ranks of its host
				far := row.ranks - 1 - near
				const heads = 1 << 13
				require.InDelta(t, near*pair, r.Memory.ReceivedBytes, heads, "rank %d", rank)
				require.InDelta(t, far*pair, r.Stats.MessageReceivedBytes-r.Memory.ReceivedBytes, heads, "rank %d", rank)
			}
		})
	}
}

// TestMessagesOfTwoHostsDeath: who waits for messages is told who has died, of its own host and of the other one.
func TestMessagesOfTwoHostsDeath(t *testing.T) {
	for _, call := range []string{"messages", "receive"} {
		t.Run(call, func(t *testing.T) {
			const size, victim = 4, 2
			p := startRoles(t, hostRole{Size: size, Family: "4", Timeout: time.Hour, Fabric: "auto"}, nil)
			p.reports(t)
			p.begin(t, "messages") // all are connected
			p.reports(t)
			for r := range size {
				if call == "messages" && r == victim {
					continue
				}
				_, err := p.in[r].Write([]byte(call + "\n"))
				require.NoError(t, err)
			}
			require.NoError(t, p.ranks[victim].Signal(syscall.SIGKILL))
			for r := range size {
				if r == victim {
					continue
				}
				var rep hostReport
				require.NoError(t, p.out[r].Decode(&rep))
				require.Equal(t, Dead, rep.Kind, rep.Error)
				require.Equal(t, victim, rep.Rank, rep.Error)
				require.Contains(t, rep.Error, fmt.Sprintf("rank %d", victim))
			}
		})
	}
}
