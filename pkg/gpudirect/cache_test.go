package gpudirect

import (
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var page = uintptr(os.Getpagesize())

// nicToken is what a strict Registrar hands out.
type nicToken struct {
	addr, size uintptr
	live       atomic.Bool
}

// nic is a Registrar that notices misuse.
type nic struct {
	pinned  bool // nothing may outlive its last reference
	refuse  int  // so many calls of Register, or all if negative
	stuck   error
	busy    atomic.Bool // one call at a time
	live    map[*nicToken]bool
	misused []string
}

func newNIC() *nic { return &nic{live: make(map[*nicToken]bool)} }

var errFull = errors.New("out of memory regions")

func (n *nic) enter() func() {
	if !n.busy.CompareAndSwap(false, true) {
		panic("two calls at once")
	}
	return func() { n.busy.Store(false) }
}

func (n *nic) Register(addr, size uintptr, _ Kind) (any, error) {
	defer n.enter()()
	if n.refuse != 0 {
		n.refuse--
		return nil, errFull
	}
	if addr%page != 0 || size%page != 0 || size == 0 {
		n.misused = append(n.misused, "not whole pages")
	}
	token := &nicToken{addr: addr, size: size}
	token.live.Store(true)
	n.live[token] = true
	return token, nil
}

func (n *nic) Deregister(token any) error {
	defer n.enter()()
	t := token.(*nicToken)
	if !t.live.Swap(false) {
		n.misused = append(n.misused, "deregistered twice")
	}
	delete(n.live, t)
	return n.stuck
}

func (n *nic) MayOutlive(kind Kind) bool { return kind == Host && !n.pinned }

func TestCache(t *testing.T) {
	n := newNIC()
	c := NewCache(n, Limits{Count: 2, Bytes: 100 * page})
	take := func(first, pages uintptr) *Registration {
		r, err := c.Acquire(first*page+5, pages*page-10, Host)
		require.NoError(t, err)
		return r
	}
	a := take(10, 4)
	require.Equal(t, 10*page, a.Addr)
	require.Equal(t, 4*page, a.Size)
	require.Same(t, a, take(11, 2), "contained")
	b := take(12, 4)
	require.NotSame(t, a, b, "overlapping only")
	require.Same(t, b, take(13, 2))
	require.Len(t, n.live, 2)
	require.Equal(t, Stats{Hits: 2, Misses: 2, Registered: 2}, c.Stats())

	require.NoError(t, c.Release(a))
	require.NoError(t, c.Release(a))
	require.ErrorContains(t, c.Release(a), "released more often than acquired")
	require.Equal(t, Stats{Hits: 2, Misses: 2, Registered: 2, Idle: 1, IdleBytes: 4 * page}, c.Stats())
	require.Same(t, a, take(10, 1), "revived")

	whole := take(0, 50)
	require.Same(t, whole, take(10, 4), "the largest one is found")
	require.True(t, a.Token.(*nicToken).live.Load(), "still referred to")
	require.NoError(t, c.Release(a))
	require.False(t, a.Token.(*nicToken).live.Load(), "never to be hit again, so not kept")

	require.NoError(t, c.Release(whole))
	require.NoError(t, c.Release(whole))
	require.True(t, whole.Token.(*nicToken).live.Load(), "idle")

	require.NoError(t, c.Close())
	require.NoError(t, c.Close())
	require.False(t, whole.Token.(*nicToken).live.Load(), "idle ones go at once")
	_, err := c.Acquire(0, 1, Host)
	require.ErrorIs(t, err, ErrClosed)
	require.True(t, b.Token.(*nicToken).live.Load())
	require.NoError(t, c.Release(b))
	require.NoError(t, c.Release(b))
	require.Empty(t, n.live)
	require.Empty(t, n.misused)
}

func TestCacheLimits(t *testing.T) {
	n := newNIC()
	c := NewCache(n, Limits{Count: 3, Bytes: 8 * page})
	use := func(first, pages uintptr, kind Kind) *Registration {
		r, err := c.Acquire(first*page, pages*page, kind)
		require.NoError(t, err)
		require.NoError(t, c.Release(r))
		return r
	}
	live := func(r *Registration) bool { return r.Token.(*nicToken).live.Load() }
	a, b, d := use(0, 1, Host), use(10, 2, Host), use(20, 3, Host)
	require.Same(t, a, use(0, 1, Host))
	e := use(30, 2, Host) // a fourth
	require.Equal(t, []bool{true, false, true, true}, []bool{live(a), live(b), live(d), live(e)},
		"the longest unused goes")
	f := use(40, 5, Host) // 11 pages
	require.Equal(t, []bool{false, true, true}, []bool{live(d), live(e), live(f)})
	g := use(50, 9, Host)
	require.False(t, live(g), "more than all that may stay")
	require.True(t, live(f), "and nothing goes for its sake")
	require.False(t, live(use(60, 1, CUDA)), "the Registrar says so")
	n.pinned = true
	require.False(t, live(use(70, 1, Host)))
	require.NoError(t, c.Close())
	require.Empty(t, n.live)

	none := NewCache(newNIC(), Limits{})
	r, err := none.Acquire(0, 1, Host)
	require.NoError(t, err)
	require.NoError(t, none.Release(r))
	require.False(t, live(r))
}

func TestCacheErrors(t *testing.T) {
	n := newNIC()
	c := NewCache(n, Limits{Count: 9, Bytes: 99 * page})
	top := ^uintptr(0) - page + 1
	for _, bad := range [][2]uintptr{{page, 0}, {0, ^uintptr(0)}, {top, 1}, {top - page, page + 1},
		{^uintptr(0), ^uintptr(0)}, {top + 1, top + 1}, {page, ^uintptr(0) - page + 1}} {
		_, err := c.Acquire(bad[0], bad[1], Host)
		require.ErrorContains(t, err, "a buffer has at least 1 byte and ends before the address space does", "%#x", bad)
	}
	last, err := c.Acquire(top-page, page, Host)
	require.NoError(t, err)
	require.NoError(t, c.Release(last))

	n.refuse = 1 // the retry succeeds, without what was idle
	r, err := c.Acquire(0, page, Host)
	require.NoError(t, err)
	require.False(t, last.Token.(*nicToken).live.Load())
	n.refuse = -1
	_, err = c.Acquire(9*page, page, CUDA)
	require.ErrorIs(t, err, errFull)
	require.ErrorContains(t, err, "register 4096 bytes of cuda memory at 0x9000")
	n.refuse = 0

	other, err := c.Acquire(0, page, CUDA)
	require.NoError(t, err)
	require.NotSame(t, r, other, "device memory where host memory was")
	require.NoError(t, c.Release(other))

	n.stuck = errors.New("busy")
	err = c.Release(r)
	require.ErrorIs(t, err, n.stuck)
	require.ErrorContains(t, err, "deregister 4096 bytes at 0x0")
	require.Zero(t, c.Stats().Registered)
}

// modelled is a registration as the naive model sees it.
type modelled struct {
	start, end uintptr
	refs       int
	known      bool // may be hit
	used       int  // when it was released last
}

// TestCacheModel does the same to a Cache and to a list that is searched from
// end to end.
func TestCacheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := Limits{
			Count: rapid.IntRange(0, 4).Draw(t, "count"), Bytes: page * uintptr(rapid.IntRange(0, 20).Draw(t, "pages")),
		}
		n := newNIC()
		c := NewCache(n, limits)
		model := make(map[*Registration]*modelled)
		var held []*Registration // one for each reference
		now := 0

		drop := func(which func(*modelled) bool) { // idle ones are deregistered, the others will be
			for r, m := range model {
				if which(m) {
					m.known = false
					if m.refs == 0 {
						delete(model, r)
					}
				}
			}
		}
		idle := func() (count int, bytes uintptr, oldest *Registration) {
			for r, m := range model {
				if m.refs == 0 {
					count++
					bytes += m.end - m.start
					if oldest == nil || m.used < model[oldest].used {
						oldest = r
					}
				}
			}
			return count, bytes, oldest
		}
		t.Repeat(map[string]func(*rapid.T){
			"acquire": func(t *rapid.T) {
				addr := uintptr(rapid.IntRange(0, 40*int(page)).Draw(t, "addr"))
				size := uintptr(rapid.IntRange(1, 12*int(page)).Draw(t, "bytes"))
				refuse := rapid.SampledFrom([]int{0, 0, 0, 0, 1, 2}).Draw(t, "refuse")
				n.refuse = refuse
				start, end := addr/page*page, (addr+size+page-1)/page*page
				var want *Registration
				for r, m := range model {
					if m.known && m.start <= start && end <= m.end && (want == nil || model[want].start < m.start) {
						want = r
					}
				}
				r, err := c.Acquire(addr, size, Host)
				if want != nil {
					require.NoError(t, err)
					require.Same(t, want, r)
				} else {
					drop(func(m *modelled) bool { return start <= m.start && m.end <= end })
					count, _, _ := idle()
					if refuse > 0 { // all idle ones go, and it is tried again
						drop(func(m *modelled) bool { return m.refs == 0 })
					}
					if refuse == 2 || refuse == 1 && count == 0 {
						n.refuse = 0
						require.ErrorIs(t, err, errFull)
						return
					}
					require.NoError(t, err)
					require.Nil(t, model[r])
					model[r] = &modelled{start: start, end: end, known: true}
					require.Equal(t, []uintptr{start, end - start}, []uintptr{r.Addr, r.Size})
				}
				n.refuse = 0
				model[r].refs++
				held = append(held, r)
			},
			"release": func(t *rapid.T) {
				if len(held) == 0 {
					t.Skip("nothing is held")
				}
				i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
				r := held[i]
				held = append(held[:i], held[i+1:]...)
				m := model[r]
				m.refs--
				now++
				m.used = now
				if m.refs == 0 && (!m.known || limits.Count == 0 || m.end-m.start > limits.Bytes) {
					delete(model, r)
				}
				for count, bytes, oldest := idle(); count > limits.Count || bytes > limits.Bytes; count, bytes, oldest = idle() {
					delete(model, oldest)
				}
				require.NoError(t, c.Release(r))
			},
			"": func(t *rapid.T) {
				require.Len(t, n.live, len(model))
				for r := range model {
					require.True(t, n.live[r.Token.(*nicToken)])
				}
				count, bytes, _ := idle()
				s := c.Stats()
				require.Equal(t, []any{len(model), count, bytes}, []any{s.Registered, s.Idle, s.IdleBytes})
				require.Empty(t, n.misused)
			},
		})
		require.NoError(t, c.Close())
		for _, r := range held {
			require.True(t, r.Token.(*nicToken).live.Load())
			require.NoError(t, c.Release(r))
		}
		require.Empty(t, n.live)
	})
}

// TestCacheAtOnce registers and moves data from many goroutines.
func TestCacheAtOnce(t *testing.T) {
	n := newNIC()
	c := NewCache(n, Limits{Count: 8, Bytes: 64 * page})
	var wg sync.WaitGroup
	for seed := range uint64(8) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 1))
			for range 3000 {
				addr, size := rng.Uint64N(64)*uint64(page), 1+rng.Uint64N(16*uint64(page))
				r, err := c.Acquire(uintptr(addr), uintptr(size), Host)
				if !assert.NoError(t, err) {
					return
				}
				moved := make(chan bool)
				go func() { // the data path
					token := r.Token.(*nicToken)
					moved <- token.live.Load() && token.addr <= uintptr(addr) && uintptr(addr+size) <= token.addr+token.size
				}()
				assert.True(t, <-moved)
				assert.NoError(t, c.Release(r))
			}
		})
	}
	wg.Wait()
	s := c.Stats()
	assert.Equal(t, s.Registered, s.Idle)
	require.NoError(t, c.Close())
	require.Empty(t, n.live)
	require.Empty(t, n.misused)
}

// filled is a cache with a thousand registrations.
func filled(tb testing.TB) *Cache {
	tb.Helper()
	c := NewCache(Unpinned{}, Limits{Count: 2000, Bytes: 1 << 40})
	for i := range uintptr(1000) {
		_, err := c.Acquire(i*64*page, 32*page, Host)
		require.NoError(tb, err)
	}
	return c
}

func TestCacheHitAllocatesNothing(t *testing.T) {
	c := filled(t)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		r, err := c.Acquire(500*64*page+7, page, Host)
		if err != nil || c.Release(r) != nil {
			t.Error(err)
		}
	}))
}

func BenchmarkCacheHit(b *testing.B) {
	c := filled(b)
	b.ReportAllocs()
	for b.Loop() {
		r, _ := c.Acquire(500*64*page+7, page, Host)
		_ = c.Release(r)
	}
}

// BenchmarkCacheRevive is NCCL's churn: the last reference goes and comes.
func BenchmarkCacheRevive(b *testing.B) {
	c := filled(b)
	b.ReportAllocs()
	for b.Loop() {
		r, _ := c.Acquire((500*64+40)*page, page, Host)
		_ = c.Release(r)
	}
}
