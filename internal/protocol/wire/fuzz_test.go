package wire

import "testing"

// Each target checks that a decoder never panics and that an accepted message survives being encoded and decoded again.

func FuzzData(f *testing.F) {
	good := make([]byte, DataSize)
	(&Data{Collective: Broadcast, Root: 3, Call: 77, Job: 1 << 60, Seq: 9, PSN: 8, Bytes: 7, Arena: 64}).Put(good)
	f.Add(good)
	f.Add(good[:DataSize-1])
	f.Fuzz(func(t *testing.T, b []byte) {
		var d, again Data
		if d.Get(b) != nil {
			return
		}
		out := make([]byte, DataSize)
		d.Put(out)
		if err := again.Get(out); err != nil || again != d {
			t.Fatalf("%+v became %+v, %v", d, again, err)
		}
	})
}

func FuzzControl(f *testing.F) {
	good := make([]byte, ControlSize)
	(&Control{Kind: Repair, Collective: Allgather, Root: 3, Seq: 9, PSN: 8, Count: 7, Bytes: 64}).Put(good)
	f.Add(good)
	f.Add(good[:ControlSize-1])
	compare := Control{Kind: Compare, Collective: Broadcast, Digest: 77, Seq: 9, Bytes: 64}
	compare.SetCall(&Call{Collective: Broadcast, Root: 3, Number: 8, Bytes: 1 << 20})
	called := make([]byte, ControlSize)
	compare.Put(called)
	f.Add(called)
	f.Fuzz(func(t *testing.T, b []byte) {
		var c, again Control
		if c.Get(b) != nil {
			return
		}
		if n := c.Payload(); n < 0 || n > MaxPayload {
			t.Fatalf("%+v has a payload of %d", c, n)
		}
		out := make([]byte, ControlSize)
		c.Put(out)
		if err := again.Get(out); err != nil || again != c {
			t.Fatalf("%+v became %+v, %v", c, again, err)
		}
		call := c.Call()
		again.SetCall(&call)
		if read := again.Call(); !read.Equal(&call) || again.Round != c.Round || again.Count != c.Count ||
			again.Arena != c.Arena || again.PSN != c.PSN {
			t.Fatalf("%+v in %+v became %+v", call, c, again)
		}
	})
}

func FuzzHello(f *testing.F) {
	good := make([]byte, HelloSize)
	(&Hello{Purpose: PurposeStream, Rank: 3, Job: 1 << 60, Key: 9}).Put(good)
	f.Add(good)
	f.Add(good[:HelloSize-1])
	f.Fuzz(func(t *testing.T, b []byte) {
		var h, again Hello
		if h.Get(b) != nil {
			return
		}
		out := make([]byte, HelloSize)
		h.Put(out)
		if err := again.Get(out); err != nil || again != h {
			t.Fatalf("%+v became %+v, %v", h, again, err)
		}
	})
}

func FuzzQueuePair(f *testing.F) {
	good := make([]byte, QueuePairSize)
	(&QueuePair{
		Number: 17, PSN: 1 << 23, MTU: 4096, Key: 5, Ring: 1 << 40, Bytes: 1 << 18, LID: 3, GID: [16]byte{10: 255},
	}).Put(good)
	f.Add(good)
	f.Add(good[:QueuePairSize-1])
	f.Fuzz(func(t *testing.T, b []byte) {
		var q, again QueuePair
		if q.Get(b) != nil {
			return
		}
		out := make([]byte, QueuePairSize)
		q.Put(out)
		if err := again.Get(out); err != nil || again != q {
			t.Fatalf("%+v became %+v, %v", q, again, err)
		}
	})
}

func FuzzStream(f *testing.F) {
	good := make([]byte, StreamSize)
	(&Stream{Type: 3, Op: 2, Seq: 9, To: 2, Bytes: 1 << 40, Factor: 0.25}).Put(good)
	f.Add(good)
	f.Add(good[:StreamSize-1])
	step := make([]byte, StreamSize)
	(&Stream{
		Op: 2, Seq: 9, To: 2, Bytes: 64,
		Call: Call{Collective: Reduce, Op: 5, Root: 7, Number: 4, Bytes: 1 << 30, Factor: 0.5},
	}).Put(step)
	f.Add(step)
	f.Fuzz(func(t *testing.T, b []byte) {
		var s, again Stream
		if s.Get(b) != nil {
			return
		}
		out := make([]byte, StreamSize)
		s.Put(out)
		if err := again.Get(out); err != nil || !again.Equal(&s) {
			t.Fatalf("%+v became %+v, %v", s, again, err)
		}
	})
}

func FuzzProbe(f *testing.F) {
	good := make([]byte, ProbeSize)
	(&Probe{Unicast: true, Job: 1 << 60, Rank: 3, Packet: 9000}).Put(good)
	f.Add(good)
	f.Add(good[:ProbeSize-1])
	f.Fuzz(func(t *testing.T, b []byte) {
		var p, again Probe
		if p.Get(b) != nil {
			return
		}
		out := make([]byte, ProbeSize)
		p.Put(out)
		if err := again.Get(out); err != nil || again != p {
			t.Fatalf("%+v became %+v, %v", p, again, err)
		}
	})
}
