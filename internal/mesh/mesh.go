// Package mesh is how the ranks of a communicator look after each other. Every
// rank keeps a TCP connection to O(log P) neighbours, on which it
//
//   - shows that it is alive, and notices who is not;
//   - passes on the first fault that anybody reports, so that every rank ends
//     with the same error, one that names the rank at fault;
//   - passes on notices of what concerns all and is no fault (Notify);
//   - agrees on what all must do alike (Agree);
//   - has all connect for messages once one needs it (Connect);
//   - tells what each rank says of itself to the one that asks (Ask).
//
// It is independent of the data path, which may be busy, and of the fabric.
//
// The words are in docs/reference/glossary.md.
package mesh

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/owntime"
	"github.com/torch-mcast/torch-mcast/internal/protocol/topology"
)

// frame kinds. A frame is kind u8, round u8, rank u16, length u32, payload.
const (
	beat byte = iota + 1
	fault
	leave
	records
	notice
	piece // of records; more of them follow
	ask
	answer
	connect
)

// Version is the version of the frames: from 2 on a fault has fields, from 3 on there is connect, from 4 on messages to
// a rank of the same host go through its memory, and there is wire.MessageAwait.
const Version = 4

const (
	frameHead  = 8
	maxPayload = 1 << 24
	// pieceBytes is what a frame holds of records: so little that frames of other kinds are not
	// late.
	pieceBytes = 64 << 10
	// maxRecords bounds the records of all ranks together.
	maxRecords = 1 << 28
	// grace is how long after a data connection was lost the reason, on another
	// connection, may still come.
	grace = 250 * time.Millisecond
	// patience is how long Close waits for neighbours to hang up.
	patience = 2 * time.Second
)

// Mesh is one rank's part.
type Mesh struct {
	rank, size int
	timeout    time.Duration
	joining    time.Duration // that a neighbour's first frame may take
	onFault    func(*Fault)
	onLeave    func(rank int, posted Posted)

	mu         sync.Mutex
	edges      map[int]*edge
	first      *Fault
	failed     chan struct{} // closed with the first fault
	departures departures
	pieces     map[int][]byte // of rounds with some records missing
	rounds     map[int][]byte
	arrived    chan struct{} // replaced whenever rounds grows
	agreed     int
	latest     Notice
	noticed    chan struct{} // replaced with every notice
	asks       asks
	connecting connecting
	making     sync.Mutex // of a page
	closing    bool
	wg         sync.WaitGroup
	reports    sync.WaitGroup // of faults to neighbours
	stop       chan struct{}
}

type edge struct {
	peer      int
	conn      net.Conn
	lastFrame atomic.Pointer[time.Time] // when the last frame came; at first, when the edge was added
	turn      chan struct{}             // one writer at a time has put something in; a Mutex would stop virtual time
	posts     []posted                  // that wait to be written; guarded by Mesh.mu
}

func (e *edge) markAlive() {
	now := time.Now()
	e.lastFrame.Store(&now)
}

// New starts the mesh of a rank. It needs a connection for each of topology.Neighbours(rank, size): the ones in conns,
// which belong to the mesh from now on, and the ones that Add brings. A neighbour counts as dead when the kernel says
// that its connection has ended, else after a silence of SilenceFor(timeout); time in which this process did not run
// does not count. A neighbour that has not called New yet may be silent for joining. onFault is called once, with the
// first fault; onLeave for each other rank that leaves.
func New(
	rank, size int, conns map[int]net.Conn, timeout, joining time.Duration,
	onFault func(*Fault), onLeave func(rank int, posted Posted),
) *Mesh {
	m := &Mesh{
		rank: rank, size: size, timeout: timeout, joining: joining, edges: map[int]*edge{}, onFault: onFault,
		onLeave: onLeave,
		failed:  make(chan struct{}), departures: departures{leaving: map[int]bool{}, all: make(chan struct{})},
		pieces: map[int][]byte{}, rounds: map[int][]byte{}, arrived: make(chan struct{}), noticed: make(chan struct{}),
		stop: make(chan struct{}),
	}
	for peer, c := range conns {
		m.Add(peer, c)
	}
	return m
}

// Add gives the mesh the missing connection to a neighbour. Until all connections are there nothing
// but a fault is passed on; neighbours added later get the fault at once.
func (m *Mesh) Add(peer int, c net.Conn) {
	e := &edge{peer: peer, conn: c, turn: make(chan struct{}, 1)}
	e.markAlive()
	m.mu.Lock()
	first := m.first
	if m.closing {
		m.mu.Unlock()
		_ = c.Close()
		return
	}
	m.edges[peer] = e
	m.wg.Add(2) // under the lock: Close waits only once closing is set
	if first != nil {
		m.reports.Add(1)
	}
	m.mu.Unlock()
	if first != nil {
		_ = m.write(e, fault, 0, first.Rank, first.payload())
		m.reports.Done()
	}
	go m.listen(e)
	go m.beat(e)
}

// neighbours returns the edges that there are.
func (m *Mesh) neighbours() []*edge {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.edges))
}

func (m *Mesh) neighbour(rank int) *edge {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.edges[rank]
}

// Report starts the end of the communicator: every rank gets f, unless another
// fault was first.
func (m *Mesh) Report(f *Fault) {
	m.mu.Lock()
	if m.first != nil || m.closing {
		m.mu.Unlock()
		return
	}
	m.first = f
	close(m.failed)
	m.reports.Add(1) // under the lock: Close waits only once closing is set
	m.mu.Unlock()
	told := make(chan struct{})
	go func() {
		m.flood(fault, f.Rank, f.payload())
		m.reports.Done()
		close(told)
	}()
	select { // what ends because of the fault may end its process, and the neighbours would not know why
	case <-told:
	case <-time.After(grace): // one of them does not read
	}
	m.onFault(f)
}

// Lost reports that a data connection to a rank is broken, unless all ranks
// leave, or the rank is about to say why.
func (m *Mesh) Lost(rank int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closing {
		return
	}
	m.wg.Add(1) // under the lock: Close waits only once closing is set
	go func() {
		defer m.wg.Done()
		reason := make(chan struct{})
		defer owntime.AfterFunc(grace, func() { close(reason) }).Stop()
		select {
		case <-reason:
		case <-m.stop:
			return
		}
		m.mu.Lock()
		over := m.allLeave()
		m.mu.Unlock()
		if !over {
			m.Report(&Fault{Kind: Dead, Rank: rank, Text: fmt.Sprintf("%v (seen by rank %d)", err, m.rank)})
		}
	}()
}

// Err returns the first fault, or nil.
func (m *Mesh) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.first == nil {
		return nil
	}
	return m.first
}

// Silent returns the neighbour that has been silent for longest, if it has missed two beats. It may
// not be dead yet; where time is over it is the one that was waited for.
func (m *Mesh) Silent() (rank int, ok bool) {
	most := m.timeout / 3
	for _, e := range m.neighbours() {
		if silent := time.Since(*e.lastFrame.Load()); silent > most {
			most, rank, ok = silent, e.peer, true
		}
	}
	return rank, ok
}

// Agree gives every rank what every rank brings (at most 256 MiB together), in rank order: a
// dissemination Allgather over the mesh. All ranks must call it equally often.
func (m *Mesh) Agree(ctx context.Context, mine []byte) ([][]byte, error) {
	if limit := maxRecords/m.size - recordHead; len(mine) > limit {
		return nil,
			fmt.Errorf("a record of %d bytes to agree on; with %d ranks at most %d are allowed", len(mine), m.size, limit)
	}
	known := make([][]byte, m.size)
	known[m.rank] = mine
	round := m.agreed * 32
	m.agreed++
	for step := 1; step < m.size; step *= 2 {
		to := m.neighbour((m.rank + step) % m.size)
		if err := m.sendRecords(to, byte(round), pack(known)); err != nil {
			m.Lost(to.peer, err)
		}
		payload, err := m.wait(ctx, round&0xff, (m.rank+m.size-step)%m.size)
		if err != nil {
			return nil, err
		}
		if err := unpack(payload, known); err != nil {
			return nil, err
		}
		round++
	}
	return known, nil
}

func (m *Mesh) sendRecords(to *edge, round byte, all []byte) error {
	for len(all) > pieceBytes {
		if err := m.write(to, piece, round, m.rank, all[:pieceBytes]); err != nil {
			return err
		}
		all = all[pieceBytes:]
	}
	return m.write(to, records, round, m.rank, all)
}

// wait returns the records of a round.
func (m *Mesh) wait(ctx context.Context, round, from int) ([]byte, error) {
	for {
		m.mu.Lock()
		payload, ok := m.rounds[round]
		delete(m.rounds, round)
		arrived := m.arrived
		m.mu.Unlock()
		if ok {
			return payload, nil
		}
		select {
		case <-arrived:
		case <-m.failed:
			return nil, m.Err()
		case <-ctx.Done():
			return nil, fmt.Errorf("rank %d has not answered: %w", from, context.Cause(ctx))
		}
	}
}

// Close ends the mesh. Unless all ranks leave, or a fault was reported, the neighbours will take
// this one for dead.
func (m *Mesh) Close() {
	m.mu.Lock()
	if m.closing {
		m.mu.Unlock()
		return
	}
	m.closing = true
	wait := grace
	if m.allLeave() && m.first == nil {
		wait = patience
	}
	m.mu.Unlock()
	close(m.stop)
	m.awaitNeighbours(wait)
	m.closeEdges()
}

// awaitNeighbours waits until the neighbours have closed their connections, too, but not for long,
// and for all that the mesh does. Who closes a connection while bytes of the peer come resets it,
// and the last message, that all leave or what failed, is lost where it is still on its way.
func (m *Mesh) awaitNeighbours(wait time.Duration) {
	enough := time.AfterFunc(min(m.timeout/3, wait), m.closeEdges)
	defer enough.Stop()
	m.reports.Wait() // else a rank that leaves because of a fault looks dead to those who do not know it
	for _, e := range m.neighbours() {
		if c, ok := e.conn.(interface{ CloseWrite() error }); ok {
			_ = c.CloseWrite()
		}
	}
	m.wg.Wait()
}

func (m *Mesh) closeEdges() {
	for _, e := range m.neighbours() {
		_ = e.conn.Close()
	}
}

// flood sends a frame to all neighbours, and each passes it on. A neighbour that does not read holds up none of them.
func (m *Mesh) flood(kind byte, rank int, payload []byte) {
	var all sync.WaitGroup
	defer all.Wait()
	for _, e := range m.neighbours() {
		all.Go(func() { _ = m.write(e, kind, 0, rank, payload) }) // a neighbour that is gone does not matter here
	}
}

// write writes a frame. A neighbour that does not read is waited for until listen finds it dead, or Close has no
// more patience: either closes the connection.
func (m *Mesh) write(e *edge, kind, round byte, rank int, payload []byte) error {
	b := make([]byte, frameHead, frameHead+len(payload))
	b[0], b[1] = kind, round
	binary.BigEndian.PutUint16(b[2:], uint16(rank))
	binary.BigEndian.PutUint32(b[4:], uint32(len(payload)))
	e.turn <- struct{}{}
	defer func() { <-e.turn }()
	_, err := e.conn.Write(append(b, payload...))
	return err
}

func (m *Mesh) handle(e *edge, kind, round byte, rank int, payload []byte) error {
	switch kind {
	case fault:
		f, err := readFault(rank, payload)
		if err != nil {
			return err
		}
		m.Report(f)
	case leave:
		if len(payload) == 16 && rank < m.size && rank != m.rank { // nobody else can say that this one leaves
			m.noteLeaving(rank, Posted{binary.BigEndian.Uint64(payload), binary.BigEndian.Uint64(payload[8:])})
		}
	case notice:
		if len(payload) >= 4 {
			m.spreadNotice(Notice{binary.BigEndian.Uint32(payload), rank, string(payload[4:])})
		}
	case connect:
		m.Connect()
	case ask:
		if len(payload) == askSize {
			m.ask(asked{number: binary.BigEndian.Uint64(payload), back: e}, int(payload[askSize-1]))
		}
	case answer:
		if len(payload) >= 8 && len(payload) <= 8+maxPage && rank < m.size {
			m.route(rank, payload)
		}
	case piece, records:
		m.mu.Lock()
		defer m.mu.Unlock()
		all := append(m.pieces[int(round)], payload...)
		if len(all) > maxRecords {
			return fmt.Errorf("records of more than %d bytes", maxRecords)
		}
		if kind == piece {
			m.pieces[int(round)] = all
			break
		}
		delete(m.pieces, int(round))
		m.rounds[int(round)] = all
		close(m.arrived)
		m.arrived = make(chan struct{})
	}
	return nil
}

// recordHead is the length of what pack writes before a record.
const recordHead = 6

// pack writes the records that are known: rank u16, length u32, bytes each.
func pack(known [][]byte) []byte {
	var b []byte
	for r, v := range known {
		if v != nil {
			b = binary.BigEndian.AppendUint16(b, uint16(r))
			b = binary.BigEndian.AppendUint32(b, uint32(len(v)))
			b = append(b, v...)
		}
	}
	return b
}

func unpack(b []byte, known [][]byte) error {
	for len(b) > 0 {
		if len(b) < recordHead {
			return errors.New("mesh: record is cut short")
		}
		r, n := int(binary.BigEndian.Uint16(b)), int(binary.BigEndian.Uint32(b[2:]))
		if r >= len(known) || n > len(b)-recordHead {
			return fmt.Errorf("mesh: record of rank %d with %d bytes does not fit", r, n)
		}
		known[r] = append([]byte{}, b[recordHead:recordHead+n]...)
		b = b[recordHead+n:]
	}
	return nil
}

// Neighbours returns the ranks that New wants a connection to.
func Neighbours(rank, size int) []int {
	return topology.Graph{Rank: rank, Size: size}.Neighbours()
}
