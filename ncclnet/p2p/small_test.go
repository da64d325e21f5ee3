package p2p

import (
	"net/netip"
	"testing"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
	"github.com/torch-mcast/torch-mcast/ncclnet/p2p/caller"
)

// With one request waited for at a time, the kernel keeps a message for a while after it was read. Messages that
// follow, of any size, must be whole, with nothing written behind them, and the end of the stream must be seen.
func TestOneByOne(t *testing.T) {
	for posted, addr := range map[int]netip.Addr{1: loopback, 2: netip.IPv6Loopback(), 3: loopback} {
		t.Run(addr.String(), func(t *testing.T) {
			if addr.Is6() {
				systest.RequireIPv6(t)
			}
			o := Options{Addr: addr, Fabric: "tcp"}
			send, recv := once(t, o, o)
			const room = 300 << 10
			from, to := memory(t, posted*room), memory(t, posted*room)
			var rs []*caller.Request
			var sizes []int
			for i := range 400 {
				size := i * i % 700
				switch {
				case i%90 > 80:
					size = i * 97 % (40 << 10) // about as large as the room for reading ahead
				case i%90 == 45:
					size = 100_000 + i
				case i%5 == 0:
					size = 0
				}
				slot := i % posted * room
				for k := range room {
					to[slot+k] = 0xee
				}
				rs, sizes = append(rs, must(t)(recv.Irecv(to[slot:][:room]))), append(sizes, size)
				if len(rs) < posted {
					continue
				}
				for k, n := range sizes {
					slot := (i - posted + 1 + k) % posted * room
					paint(from[slot:][:n], uint64(i-posted+1+k))
					got := finish(t, must(t)(send.Isend(from[slot:][:n])), rs[k])
					if got[1] != n {
						t.Fatalf("%d posted, message %d has %d bytes, not %d", posted, i, got[1], n)
					}
					checkPaint(t, to[slot:][:n], uint64(i-posted+1+k))
					for at, b := range to[slot:][n:room] {
						if b != 0xee {
							t.Fatalf("%d posted: byte %d behind message %d of %d bytes was written", posted, at, i, n)
						}
					}
				}
				rs, sizes = nil, nil
			}
			r := must(t)(recv.Irecv(to[:room]))
			send.Close()
			if e := fails(t, r); e.Code != caller.Remote {
				t.Fatal(e)
			}
			recv.Close()
		})
	}
}
