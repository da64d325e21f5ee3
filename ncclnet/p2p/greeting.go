package p2p

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
)

// greeting is the first message of a connecting end on each of its sockets.
type greeting struct {
	key   uint64 // the listener's
	id    uint64 // of the connection, drawn by the connecting end
	lane  int    // 0, which agrees on the rest, or a further one; ignored with a ring
	lanes int    // that the connecting end would open
	offer fabrics
	seal  sealPolicy
}

const greetingSize = 32

var errStranger = errors.New("p2p: a stranger")

func (g greeting) bytes() []byte {
	b := make([]byte, 0, greetingSize)
	b = binary.LittleEndian.AppendUint32(b, magic)
	b = binary.LittleEndian.AppendUint16(b, version)
	b = binary.LittleEndian.AppendUint16(b, uint16(g.lane))
	b = binary.LittleEndian.AppendUint64(b, g.key)
	b = binary.LittleEndian.AppendUint64(b, g.id)
	b = binary.LittleEndian.AppendUint16(b, uint16(g.lanes))
	b = binary.LittleEndian.AppendUint16(b, uint16(g.offer))
	b = binary.LittleEndian.AppendUint16(b, uint16(g.seal))
	return binary.LittleEndian.AppendUint16(b, 0)
}

func parseGreeting(b []byte, key uint64) (greeting, error) {
	if len(b) != greetingSize || binary.LittleEndian.Uint32(b) != magic ||
		binary.LittleEndian.Uint16(b[4:]) != version || binary.LittleEndian.Uint64(b[8:]) != key {
		return greeting{}, errStranger
	}
	g := greeting{
		key: key, lane: int(binary.LittleEndian.Uint16(b[6:])), id: binary.LittleEndian.Uint64(b[16:]),
		lanes: int(binary.LittleEndian.Uint16(b[24:])), offer: fabrics(binary.LittleEndian.Uint16(b[26:])),
		seal: sealPolicy(binary.LittleEndian.Uint16(b[28:])),
	}
	if g.lane >= MaxLanes || g.lanes < 1 || g.lanes > MaxLanes {
		return greeting{}, errStranger
	}
	return g, nil
}

// answer is the listener's message on lane 0. It is sent twice: first with the listener's choices, then,
// with ready set, when the listener has everything.
type answer struct {
	ready  bool
	lanes  int
	fabric fabrics // none: there is no fabric that both ends allow
	seal   sealPolicy
}

const answerSize = 16

func (a answer) bytes() []byte {
	b := make([]byte, answerSize)
	binary.LittleEndian.PutUint32(b, magic)
	if a.ready {
		b[4] = 1
	}
	binary.LittleEndian.PutUint16(b[6:], uint16(a.lanes))
	binary.LittleEndian.PutUint16(b[8:], uint16(a.fabric))
	binary.LittleEndian.PutUint16(b[10:], uint16(a.seal))
	return b
}

func readAnswer(c net.Conn, ready bool) (answer, error) {
	b := make([]byte, answerSize)
	if _, err := io.ReadFull(c, b); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("the listener closed the connection")
		}
		return answer{}, err
	}
	a := answer{
		ready: b[4] == 1, lanes: int(binary.LittleEndian.Uint16(b[6:])), fabric: fabrics(binary.LittleEndian.Uint16(b[8:])),
		seal: sealPolicy(binary.LittleEndian.Uint16(b[10:])),
	}
	if binary.LittleEndian.Uint32(b) != magic || a.ready != ready || a.lanes < 1 || a.lanes > MaxLanes {
		return answer{}, fmt.Errorf("the peer is no listener of this library: % x", b)
	}
	return a, nil
}
