package group

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/mesh"
)

// messageSizes are around the limits of what is eager, a piece, and a ring.
var messageSizes = []int{0, 1, 100, 8 << 10, 8<<10 + 1, 100_000, 256 << 10, 1<<20 + 3, 3 << 20}

// TestSendAndReceive has each rank send to each other rank, all at the same time.
func TestSendAndReceive(t *testing.T) {
	for name, change := range map[string]func(*config.Settings){
		"shm": func(s *config.Settings) { s.Fabric = "shm" }, "udp": func(s *config.Settings) { s.Fabric = "udp" },
		"secret": withSecret, "encrypted": withEncryption,
	} {
		t.Run(name, func(t *testing.T) {
			const p = 3
			g := world(t, p, change)
			each(t, p, func(r int) error {
				var works []*Message
				var into [][]byte
				for i, n := range messageSizes {
					for d := 1; d < p; d++ {
						b, to := make([]byte, n), (r+d)%p
						fill(b, r*1000+to*100+i)
						w, err := g[r].StartSend(b, to, uint64(i%2))
						require.NoError(t, err)
						works = append(works, w)
					}
				}
				for i, n := range messageSizes {
					for d := 1; d < p; d++ {
						b := make([]byte, n)
						w, err := g[r].StartReceive(b, (r+p-d)%p, uint64(i%2))
						require.NoError(t, err)
						works, into = append(works, w), append(into, b)
					}
				}
				for _, w := range works {
					require.NoError(t, w.WaitUntil(time.Time{}))
				}
				for i, n := range messageSizes {
					for d := 1; d < p; d++ {
						want := make([]byte, n)
						fill(want, (r+p-d)%p*1000+r*100+i)
						require.Equal(t, want, into[i*(p-1)+d-1], "of %d bytes", n)
					}
				}
				return nil
			})
			require.NotZero(t, g[0].Stats().MessageOps)
		})
	}
}

func TestReceiveFromAnyRank(t *testing.T) {
	onBoth(t, 4, func(t *testing.T, g []*Group) {
		each(t, 4, func(r int) error {
			if r > 0 {
				w, err := g[r].StartSend(make([]byte, r*10_000), 0, 5)
				require.NoError(t, err)
				return w.WaitUntil(time.Time{})
			}
			seen := map[int]bool{}
			for range 3 {
				w, err := g[0].StartReceive(make([]byte, 40_000), AnySource, 5)
				require.NoError(t, err)
				require.NoError(t, w.WaitUntil(time.Time{}))
				from, bytes := w.Source()
				require.Equal(t, from*10_000, bytes)
				seen[from] = true
			}
			require.Len(t, seen, 3)
			return nil
		})
	})
}

func TestAllToAll(t *testing.T) {
	onBoth(t, 4, func(t *testing.T, g []*Group) {
		for round := range 4 {
			size := func(from, to int) int { return messageSizes[(round*5+from*3+to)%len(messageSizes)] }
			each(t, 4, func(r int) error {
				var send, recv, want []byte
				var sent, received []int
				for peer := range 4 {
					b := make([]byte, size(r, peer))
					fill(b, round*100+r*10+peer)
					send, sent = append(send, b...), append(sent, len(b))
					b = make([]byte, size(peer, r))
					fill(b, round*100+peer*10+r)
					want, received = append(want, b...), append(received, len(b))
				}
				recv = make([]byte, len(want))
				w, err := g[r].StartAllToAll(send, recv, sent, received)
				require.NoError(t, err)
				require.NoError(t, w.WaitUntil(time.Time{}))
				require.Equal(t, want, recv)
				return nil
			})
		}
	})
}

func TestGatherAndScatter(t *testing.T) {
	onBoth(t, 4, func(t *testing.T, g []*Group) {
		for i, n := range messageSizes {
			all := make([]byte, 4*n)
			fill(all, i)
			root := i % 4
			each(t, 4, func(r int) error {
				var recv, send []byte
				if r == root {
					recv, send = make([]byte, 4*n), all
				}
				w, err := g[r].StartGather(all[r*n:(r+1)*n], recv, root)
				require.NoError(t, err)
				require.NoError(t, w.WaitUntil(time.Time{}))
				if r == root {
					require.Equal(t, all, recv)
				}
				own := make([]byte, n)
				w, err = g[r].StartScatter(send, own, root)
				require.NoError(t, err)
				require.NoError(t, w.WaitUntil(time.Time{}))
				require.Equal(t, all[r*n:(r+1)*n], own)
				return nil
			})
		}
	})
}

func TestMessageArguments(t *testing.T) {
	g := world(t, 2, nil)
	for want, f := range map[string]func() error{
		"send to rank 2; allowed are 0 to 1, without this rank, 0": func() error {
			_, err := g[0].StartSend(nil, 2, 0)
			return err
		},
		"receive from rank 0; allowed are 0 to 1, without this rank, 0, and -1 for any": func() error {
			_, err := g[0].StartReceive(nil, 0, 0)
			return err
		},
		"all-to-all: send has 1 sizes; 2 ranks need one each": func() error {
			_, err := g[0].StartAllToAll(nil, nil, []int{0}, []int{0, 0})
			return err
		},
		"all-to-all: recv has 3 bytes, and all sizes together are 2": func() error {
			_, err := g[0].StartAllToAll(make([]byte, 2), make([]byte, 3), []int{1, 1}, []int{1, 1})
			return err
		},
		"all-to-all: send has 1 bytes, and the sizes of ranks 0 to 1 are [1 1]": func() error {
			_, err := g[0].StartAllToAll(make([]byte, 1), nil, []int{1, 1}, []int{0, 0})
			return err
		},
		"gather: root 2 is not a rank; ranks are 0 to 1": func() error {
			_, err := g[0].StartGather(nil, nil, 2)
			return err
		},
		"scatter: the root has 3 bytes for all ranks; 2 shards of 2 bytes need 4": func() error {
			_, err := g[0].StartScatter(make([]byte, 3), make([]byte, 2), 0)
			return err
		},
	} {
		require.EqualError(t, f(), want)
	}
}

// TestMessagesThatDisagree ends the group on all ranks with who called what.
func TestMessagesThatDisagree(t *testing.T) {
	onBoth(t, 3, func(t *testing.T, g []*Group) {
		each(t, 3, func(r int) error {
			var w *Message
			var err error
			switch r {
			case 0:
				w, err = g[0].StartSend(make([]byte, 9), 1, 0)
			case 1:
				w, err = g[1].StartReceive(make([]byte, 8), 0, 0)
			default:
				w, err = g[2].StartReceive(make([]byte, 8), 0, 0)
			}
			require.NoError(t, err)
			f := asFault(t, w.WaitUntil(time.Time{}))
			require.Equal(t, mesh.Mismatch, f.Kind)
			require.ErrorContains(t, f, "rank 0 called a send of 9 bytes to rank 1, rank 1 a receive of 8 bytes from rank 0")
			return nil
		})
	})
}

// TestCollectivesThatDisagree has two ranks call different things, so that neither sends what the other one waits for.
func TestCollectivesThatDisagree(t *testing.T) {
	gather := func(g *Group, root int) (*Work, error) { return g.StartGather(make([]byte, 9), make([]byte, 18), root) }
	scatter := func(g *Group, root int) (*Work, error) {
		return g.StartScatter(make([]byte, 18), make([]byte, 9), root)
	}
	sizes := func(g *Group, of int) (*Work, error) {
		return g.StartAllToAll(make([]byte, 2*of), make([]byte, 2*of), []int{of, of}, []int{of, of})
	}
	for name, row := range map[string]struct {
		call [2]func(*Group, int) (*Work, error)
		with [2]int    // roots or sizes
		want [2]string // either rank may be the first to see it
	}{
		"both gather": {
			[2]func(*Group, int) (*Work, error){gather, gather}, [2]int{0, 1},
			[2]string{"rank 0 called gather of 9 bytes to rank 0", "rank 1 gather of 9 bytes to rank 1"},
		},
		"neither scatters": {
			[2]func(*Group, int) (*Work, error){scatter, scatter}, [2]int{1, 0},
			[2]string{"rank 0 called scatter of 9 bytes from rank 1", "rank 1 scatter of 9 bytes from rank 0"},
		},
		"gather and scatter": {
			[2]func(*Group, int) (*Work, error){gather, scatter}, [2]int{0, 0},
			[2]string{"rank 0 called gather of 9 bytes to rank 0", "rank 1 scatter of 9 bytes from rank 0"},
		},
		"gather and all-to-all": {
			[2]func(*Group, int) (*Work, error){gather, sizes}, [2]int{0, 100_000},
			[2]string{"rank 0 called gather of 9 bytes to rank 0", "rank 1 all-to-all"},
		},
		"sizes": {
			[2]func(*Group, int) (*Work, error){sizes, sizes}, [2]int{9, 8},
			[2]string{"rank 0 called all-to-all of 9 bytes", "rank 1 all-to-all of 8 bytes"},
		},
	} {
		for _, fabric := range []string{"shm", "udp"} {
			t.Run(fabric+"/"+name, func(t *testing.T) {
				g := world(t, 2, func(s *config.Settings) { s.Fabric = fabric })
				each(t, 2, func(r int) error {
					w, err := row.call[r](g[r], row.with[r])
					require.NoError(t, err)
					_ = w.WaitUntil(time.Time{}) // a small part may be done before
					later, err := g[r].StartReceive(nil, 1-r, 7)
					if err == nil {
						err = later.WaitUntil(time.Time{})
					}
					f := asFault(t, err)
					require.Equal(t, mesh.Mismatch, f.Kind)
					require.ErrorContains(t, f, row.want[0])
					require.ErrorContains(t, f, row.want[1])
					return nil
				})
			})
		}
	}
}

// TestMessageFromARankThatLeaves has a rank close the group though another waits for it.
func TestMessageFromARankThatLeaves(t *testing.T) {
	for _, fabric := range []string{"shm", "udp"} {
		g := assemble(t, 2, func(s *config.Settings) { s.Fabric = fabric })
		sent := make([]byte, 100_000)
		fill(sent, 1)
		each(t, 2, func(r int) error {
			if r == 1 {
				w, err := g[1].StartSend(sent, 0, 0)
				require.NoError(t, err)
				require.NoError(t, w.WaitUntil(time.Time{}))
				return g[1].Close()
			}
			got := make([]byte, len(sent))
			w, err := g[0].StartReceive(got, 1, 0)
			require.NoError(t, err)
			require.NoError(t, w.WaitUntil(time.Time{}), "it was sent before")
			require.Equal(t, sent, got)
			w, err = g[0].StartReceive(got, 1, 0)
			require.NoError(t, err)
			f := asFault(t, w.WaitUntil(time.Time{}))
			require.Equal(t, Fault{Kind: Left, Rank: 1, Text: "while a receive was in flight on rank 0"}, *f)
			return g[0].Close()
		})
	}
}
