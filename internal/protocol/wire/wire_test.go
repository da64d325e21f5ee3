package wire

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestLayout pins every field to its bytes: peers of other versions rely on it.
func TestLayout(t *testing.T) {
	data := Data{
		Collective: Allgather, Subgroup: 0x02, Root: 0x0304, Call: 0x1d1e, Job: 0x05060708090a0b0c,
		Seq: 0x0d0e0f10, PSN: 0x11121314, Bytes: 0x15161718, Arena: 0x191a1b1c,
	}
	b := make([]byte, DataSize)
	data.Put(b)
	assert.Equal(t, []byte{
		0x6d, 0x63, 0x73, 2, 5, 6, 7, 8, 9, 10, 11, 12, 3, 4, 29, 30, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26,
		27, 28,
	}, b)

	control := Control{
		Kind: Fetch, Collective: Broadcast, Round: 0x02, Root: 0x0304, Digest: 0x1d1e, Seq: 0x05060708,
		PSN: 0x090a0b0c, Count: 0x0d0e0f10, Arena: 0x191a1b1c, Bytes: 0x1112131415161718,
	}
	b = make([]byte, ControlSize)
	control.Put(b)
	assert.Equal(t, []byte{
		4, 0x72, 2, 0, 3, 4, 29, 30, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 25, 26, 27, 28, 17, 18, 19, 20, 21, 22, 23,
		24,
	}, b)

	hello := Hello{Purpose: PurposeControl, Rank: 0x0102, Job: 0x030405060708090a, Key: 0x0b0c0d0e0f101112}
	b = make([]byte, HelloSize)
	hello.Put(b)
	assert.Equal(t, []byte{'m', 'c', 's', 't', 7, 2, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18}, b)

	probe := Probe{Unicast: true, Job: 0x030405060708090a, Rank: 0x0b0c, Packet: 0x0d0e0f10}
	b = make([]byte, ProbeSize)
	probe.Put(b)
	assert.Equal(t, []byte{'m', 'p', 7, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, b)

	stream := Stream{
		Type: 1, Op: 2, Of: 0x17181920, Seq: 0x03040506, To: 0x15161718, Bytes: 0x0708090a0b0c0d0e, Factor: 1.5,
		From: 0x0f101112, Epoch: 0x13141516,
		Call: Call{Collective: Reduce, Op: 4, Number: 0x21222324, Root: 0x2526, Bytes: 0x2728292a2b2c, Factor: 2.5},
	}
	b = make([]byte, StreamSize)
	stream.Put(b)
	assert.Equal(t, []byte{
		7, 1, 2, 0x54, 0x17, 0x18, 0x19, 0x20, 3, 4, 5, 6, 0x15, 0x16, 0x17, 0x18, 7, 8, 9, 10, 11, 12, 13, 14, 0x3f, 0xf8, 0,
		0, 0, 0, 0, 0,
		15, 16, 17, 18, 19, 20, 21, 22,
		0x21, 0x22, 0x23, 0x24, 0, 0, 0, 0, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2a, 0x2b, 0x2c, 0x40, 0x04, 0, 0, 0, 0, 0, 0,
	}, b)
	pair := QueuePair{
		Number: 0x010203, PSN: 0x040506, MTU: 0x0708090a, Key: 0x0b0c0d0e, Ring: 0x0f10111213141516, Bytes: 0x1718191a,
		LID: 0x1d1e,
		GID: [16]byte{0x1b, 15: 0x1c},
	}
	b = make([]byte, QueuePairSize)
	pair.Put(b)
	assert.Equal(t, []byte{
		'm', 'c', 'q', 'p', 7, 0, 0, 0, 0, 1, 2, 3, 0, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22,
		23, 24, 25, 26, 29, 30, 0, 0,
		27, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 28,
	}, b)
	other := stream
	other.From, other.Epoch = 0, 0
	assert.True(t, stream.Equal(&other), "news is no part of the operation")
	for _, change := range []func(){
		func() { other.Type++ }, func() { other.Op++ }, func() { other.Of++ }, func() { other.Seq++ }, func() { other.To++ },
		func() { other.Bytes++ }, func() { other.Factor++ },
		func() { other.Call.Root++ },
	} {
		other = stream
		change()
		assert.False(t, stream.Equal(&other))
	}
}

// TestRefusals changes one byte of a good message at a time.
func TestRefusals(t *testing.T) {
	data, control, hello, stream := make([]byte, DataSize), make([]byte, ControlSize), make([]byte, HelloSize),
		make([]byte, StreamSize)
	(&Data{Collective: Barrier}).Put(data)
	(&Control{Kind: Repair, Bytes: MaxPayload}).Put(control)
	(&Hello{Purpose: PurposeMesh}).Put(hello)
	(&Stream{}).Put(stream)
	probe := make([]byte, ProbeSize)
	(&Probe{Unicast: true}).Put(probe)
	pair := make([]byte, QueuePairSize)
	(&QueuePair{}).Put(pair)
	getPair := func(b []byte) error { return new(QueuePair).Get(b) }
	getProbe := func(b []byte) error { return new(Probe).Get(b) }
	getStream := func(b []byte) error { return new(Stream).Get(b) }
	getData := func(b []byte) error { return new(Data).Get(b) }
	getControl := func(b []byte) error { return new(Control).Get(b) }
	getHello := func(b []byte) error { return new(Hello).Get(b) }
	for _, c := range []struct {
		name string
		get  func([]byte) error
		good []byte
		at   int
		to   byte
		want error
	}{
		{"data magic", getData, data, 1, 0, ErrMagic},
		{"data version", getData, data, 2, 0x11, ErrVersion},
		{"data collective low", getData, data, 2, 0x70, ErrField},
		{"data collective high", getData, data, 2, 0x74, ErrField},
		{"control kind low", getControl, control, 0, 0, ErrField},
		{"control kind high", getControl, control, 0, byte(kindEnd), ErrField},
		{"control version", getControl, control, 1, 0, ErrVersion},
		{"control collective", getControl, control, 1, 0x74, ErrField},
		{"control payload", getControl, control, 31, 1, ErrField},
		{"hello magic", getHello, hello, 0, 0, ErrMagic},
		{"hello version", getHello, hello, 4, 1, ErrVersion},
		{"hello purpose low", getHello, hello, 5, 0, ErrField},
		{"hello purpose high", getHello, hello, 5, byte(purposeEnd), ErrField},
		{"probe magic", getProbe, probe, 1, 'c', ErrMagic},
		{"probe version", getProbe, probe, 2, 1, ErrVersion},
		{"probe unicast", getProbe, probe, 3, 2, ErrField},
		{"queue pair magic", getPair, pair, 2, 0, ErrMagic},
		{"queue pair version", getPair, pair, 4, 8, ErrVersion},
		{"queue pair number", getPair, pair, 8, 1, ErrField},
		{"queue pair PSN", getPair, pair, 12, 1, ErrField},
		{"stream version", getStream, stream, 0, 9, ErrVersion},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.NoError(t, c.get(c.good))
			bad := append([]byte(nil), c.good...)
			bad[c.at] = c.to
			require.ErrorIs(t, c.get(bad), c.want)
			for n := range c.good {
				require.ErrorIs(t, c.get(c.good[:n]), ErrShort)
			}
		})
	}
}

func TestPayload(t *testing.T) {
	assert.Equal(t, 7, (&Control{Kind: Repair, Bytes: 7}).Payload())
	assert.Equal(t, 7, (&Control{Kind: Relay, Bytes: 7}).Payload())
	assert.Zero(t, (&Control{Kind: Ready, Bytes: 7}).Payload())
}

// TestDataOf: the header of a chunk that followed a message says which message it was.
func TestDataOf(t *testing.T) {
	m := Control{Kind: Repair, Collective: Allgather, Root: 3, Digest: 9, Seq: 4, PSN: 5, Count: 6, Arena: 7, Bytes: 8}
	d := DataOf(&m)
	assert.Equal(t, Data{Collective: Allgather, Root: 3, Call: 9, Seq: 4, PSN: 5, Bytes: 6}, d)
	assert.Equal(t, []bool{false, true, false, false}, []bool{d.IsMulticast(), d.IsRepair(), d.IsRelay(), d.IsProbe()})
	m.Kind = Relay
	d = DataOf(&m)
	assert.EqualValues(t, 7, d.Arena)
	assert.Equal(t, []bool{false, false, true, false}, []bool{d.IsMulticast(), d.IsRepair(), d.IsRelay(), d.IsProbe()})
	m.Round = 1
	d = DataOf(&m)
	assert.Equal(t, []bool{false, false, true, true}, []bool{d.IsMulticast(), d.IsRepair(), d.IsRelay(), d.IsProbe()})
	d.Job = 1
	assert.Equal(t, []bool{true, false, false, false}, []bool{d.IsMulticast(), d.IsRepair(), d.IsRelay(), d.IsProbe()})
}

// TestIntroduction: a description of one end of a connection arrives.
func TestIntroduction(t *testing.T) {
	for _, source := range []bool{false, true} {
		i := Introduction{Source: source, Number: 1<<24 - 1, PSN: 0x123456, MTU: 4096}
		b := make([]byte, ControlSize)
		m := i.Control()
		m.Put(b)
		var got Control
		require.NoError(t, got.Get(b))
		assert.Equal(t, Introduce, got.Kind)
		assert.Zero(t, got.Payload())
		assert.Equal(t, i, IntroductionOf(&got))
	}
}

func TestNames(t *testing.T) {
	assert.Equal(t, "fetch", Fetch.String())
	assert.Equal(t, "kind(99)", Kind(99).String())
	assert.Equal(t, "allgather", Allgather.String())
	assert.Equal(t, "collective(9)", Collective(9).String())
}

func TestDecodersDoNotAllocate(t *testing.T) {
	b := make([]byte, DataSize)
	(&Data{Collective: Allgather}).Put(b)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		var d Data
		if d.Get(b) != nil {
			t.Fail()
		}
	}))
}
