package seal

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/torch-mcast/torch-mcast/internal/coredump/coredumptest"
)

const headerSize = 32

var kinds = []Kind{Tags, Encryption, Checksum}

func (k Kind) String() string { return [...]string{"none", "tags", "encryption", "checksum"}[k] }

// sent is a sealed datagram, as it travels; room behind its payload belongs to others.
func sent(s *Sealer, number uint32, header, payload []byte) (head, sealed []byte) {
	head = append(append([]byte{}, header...), make([]byte, s.Size())...)
	sealed = append(append(make([]byte, 0, len(payload)+2*Spare), payload...), make([]byte, 2*Spare)...)
	for i := range 2 * Spare {
		sealed[len(payload)+i] = byte(i)
	}
	sealed = sealed[:len(payload)]
	s.Seal(number, head, payload, sealed)
	for i := range Spare {
		sealed[:len(payload)+Spare][len(payload)+i] = byte(i) // Seal may write there, Open must leave it
	}
	return head, sealed
}

// TestSealsHold changes one bit of a sealed datagram anywhere, cuts it, says that it is another's or takes another key.
func TestSealsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom(kinds).Draw(t, "kind")
		key := rapid.SliceOfN(rapid.Byte(), KeySize, KeySize).Draw(t, "key")
		sender, number := rapid.Uint32().Draw(t, "sender"), rapid.Uint32().Draw(t, "number")
		header := rapid.SliceOfN(rapid.Byte(), 0, MaxHeader).Draw(t, "header")
		payload := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "payload")
		from := New(kind, key, sender)
		from.next = rapid.Uint64().Draw(t, "counter")
		head, sealed := sent(from, number, header, payload)
		open := func(k []byte, by, number uint32, head, sealed []byte) ([]byte, bool) {
			whole := append([]byte{}, sealed[:len(sealed)+2*Spare]...)
			ok := New(kind, k, 0).Open(by, number, head, whole[:len(sealed)])
			require.Equal(t, sealed[:len(sealed)+2*Spare][len(sealed):], whole[len(sealed):],
				"what lies behind a payload is not the sealer's")
			return whole[:len(sealed)], ok
		}
		got, ok := open(key, sender, number, head, sealed)
		require.True(t, ok)
		require.Equal(t, payload, got)
		require.Equal(t, header, head[:len(header)])

		if bits := 8 * (len(head) + len(payload)); bits > 0 {
			h, p := append([]byte{}, head...), append([]byte{}, sealed[:len(sealed)+2*Spare]...)[:len(sealed)]
			bit := rapid.IntRange(0, bits-1).Draw(t, "bit")
			if at := bit / 8; at < len(h) {
				h[at] ^= 1 << (bit % 8)
			} else {
				p[at-len(h)] ^= 1 << (bit % 8)
			}
			_, ok = open(key, sender, number, h, p)
			require.False(t, ok)
		}
		_, ok = open(key, sender, number, head[:rapid.IntRange(0, kind.Size()-1).Draw(t, "cut")], sealed)
		require.False(t, ok)
		if kind == Checksum {
			return
		}
		_, ok = open(key, sender+1, number, head, sealed)
		require.False(t, ok)
		_, ok = open(key, sender, number+1, head, sealed)
		require.False(t, ok)
		other := append([]byte{}, key...)
		other[rapid.IntRange(0, KeySize-1).Draw(t, "byte")] ^= 1
		_, ok = open(other, sender, number, head, sealed)
		require.False(t, ok)
	})
}

// A datagram that is sealed twice has another counter each time, so another tag and, if it is encrypted, other bytes.
func TestCountersDoNotRepeat(t *testing.T) {
	for _, kind := range kinds[:2] {
		s := New(kind, make([]byte, KeySize), 3)
		seen := map[string]bool{}
		for range 1000 {
			head, sealed := sent(s, 5, make([]byte, headerSize), make([]byte, 64))
			require.False(t, seen[string(head[headerSize:][:counterSize])], "a nonce that was used")
			require.False(t, seen[string(head[headerSize+counterSize:])])
			seen[string(head[headerSize:][:counterSize])], seen[string(head[headerSize+counterSize:])] = true, true
			if kind == Encryption {
				require.False(t, seen[string(sealed)])
				seen[string(sealed)] = true
			}
		}
	}
}

func TestKinds(t *testing.T) {
	var none *Sealer
	require.Zero(t, none.Size())
	require.False(t, none.Encrypts())
	require.False(t, none.Keyed())
	for _, kind := range kinds {
		s := New(kind, make([]byte, KeySize), 0)
		require.Equal(t, kind, s.Kind())
		require.Equal(t, kind == Encryption, s.Encrypts())
		require.Equal(t, kind != Checksum, s.Keyed())
	}
	require.Equal(t, MaxSize, Tags.Size())
	require.Equal(t, MaxSize, Encryption.Size())
	require.Equal(t, 4, Checksum.Size())
	require.Panics(t, func() { New(Tags, make([]byte, 16), 0) })
}

func TestKeysAreInNoCore(t *testing.T) {
	coredumptest.By(t, func() { New(Tags, make([]byte, KeySize), 0) })
	last := coredumptest.Grow(t)
	New(Checksum, nil, 0)
	require.False(t, coredumptest.Omitted(t, last), "it has no key")
}

func TestSealersDoNotAllocate(t *testing.T) {
	for _, kind := range kinds {
		s := New(kind, make([]byte, KeySize), 1)
		head, payload := make([]byte, headerSize+s.Size()), make([]byte, 1440, 1440+Spare)
		require.Zero(t, testing.AllocsPerRun(100, func() {
			s.Seal(1, head, payload, payload)
			if !s.Open(1, 1, head, payload) {
				panic("not its own seal")
			}
			head[0]++
			if s.Open(1, 1, head, payload) {
				panic("another header")
			}
		}), kind)
	}
}

// Benchmark measures how fast one core seals and opens, by processor time, so that other load does not count.
func Benchmark(b *testing.B) {
	used := func() time.Duration {
		var u unix.Rusage
		require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	for _, kind := range kinds {
		for _, size := range []int{1408, 8896} {
			s := New(kind, make([]byte, KeySize), 1)
			head, payload, sealed := make([]byte, headerSize+s.Size()), make([]byte, size), make([]byte, size, size+Spare)
			for name, f := range map[string]func(){
				"seal": func() { s.Seal(1, head, payload, sealed) },
				"open": func() { s.Open(1, 1, head, sealed) }, // an encrypted one is right once, then wrong: that takes as long
			} {
				b.Run(fmt.Sprintf("%s/%v/%d", name, kind, size), func(b *testing.B) {
					start := used()
					for b.Loop() {
						f()
					}
					b.ReportMetric(float64(size*b.N)/1e9/(used()-start).Seconds(), "GB/s/core")
				})
			}
		}
	}
}
