package bootstrap

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/owntime"
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/transport/acceptor"
	"github.com/torch-mcast/torch-mcast/internal/transport/identity"
)

// Rendezvous is a small TCP exchange of blobs for programs that bring no store of their own. Every rank but 0 connects
// and sends a greeting; once all have come, rank 0 answers each with all blobs. With a secret the exchange is TLS, and
// only processes that know the secret take part. Integers are big-endian.
//
//	greeting  0 magic u64, 8 key u64, 16 size u32, 20 rank u32, 24 length u32, then the blob
//	answer    0 magic u64, 8 verdict u32 (0: blobs follow, else one refusal in JSON), 12 count u32,
//	          then count times: length u32, bytes
const (
	greetingMagic = 0x6d63_6173_742d_6869 // "mcast-hi"
	answerMagic   = 0x6d63_6173_742d_6f6b // "mcast-ok"
	greetingSize  = 28
	answerSize    = 16
	maxPart       = 16 << 10 // of 64 strangers a MiB
	// A rank that takes longer than this to read rank 0's answer does without, once the time to join is over.
	answerLimit = 5 * time.Second
	redialEvery = 50 * time.Millisecond
	// Ranks that begin together run out of time together: rank 0 then says who has not come, and
	// the others listen so much longer.
	verdictLimit = time.Second
)

var (
	errForeign  = errors.New("not a torch-mcast rendezvous")
	errSecret   = errors.New("a greeting of one who has a secret")
	errNoAnswer = errors.New("it listens, and has not answered")
)

// Meeting says who meets at a rendezvous.
type Meeting struct {
	// Key tells jobs apart that may come to one address, one after the other: a rank with another key is
	// turned away, so that one left over from a job that died takes nobody's place.
	Key uint64
	// Identity belongs to the secret that all ranks have; nil: anybody who comes is taken for a rank.
	Identity *identity.Identity
	// Waits is told every few seconds whom this rank waits for, and why; nil: nobody is.
	Waits func(text string)
}

// NewMeeting returns the Meeting of all ranks that know a key and a secret, which may be empty.
func NewMeeting(key uint64, secret string) (Meeting, error) {
	id, err := identity.New(secret)
	return Meeting{Key: key, Identity: id}, err
}

// Rendezvous is Meeting.Rendezvous for those who need neither key nor secret.
func Rendezvous(ctx context.Context, addr string, rank, size int, blob []byte) ([][]byte, error) {
	return Meeting{}.Rendezvous(ctx, addr, rank, size, blob)
}

// Rendezvous gives every rank the blobs of all, in rank order. Rank 0 listens
// on addr ("host:port"), the others connect to it, at any time before ctx
// ends. Connections that do not open with a proper greeting have no effect.
// When ctx ends first, the error names the ranks that have not come.
func (m Meeting) Rendezvous(ctx context.Context, addr string, rank, size int, blob []byte) ([][]byte, error) {
	return m.RendezvousOver(ctx, hostnet.Kernel{}, addr, rank, size, blob)
}

// RendezvousOver is Rendezvous over another network than the kernel's.
func (m Meeting) RendezvousOver(
	ctx context.Context, n hostnet.Network, addr string, rank, size int, blob []byte,
) ([][]byte, error) {
	if err := checkRendezvous(rank, size, blob); err != nil {
		return nil, err
	}
	if size == 1 {
		return [][]byte{blob}, nil
	}
	if rank > 0 {
		return m.callZero(ctx, n, addr, greeting{m.Key, size, rank, blob})
	}
	ln, err := n.Listen(ctx, "tcp", listenAddr(addr))
	if err != nil {
		return nil, fmt.Errorf("rendezvous: rank 0 cannot listen for the others: %w", err)
	}
	return m.RendezvousOn(ctx, ln, size, blob)
}

// RendezvousOn is rank 0's part of Rendezvous on a listener that is open
// already. It closes ln.
func (m Meeting) RendezvousOn(ctx context.Context, ln net.Listener, size int, blob []byte) ([][]byte, error) {
	if err := checkRendezvous(0, size, blob); err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	blobs := make([][]byte, size)
	blobs[0] = blob
	arrived, err := m.gather(ctx, ln, blobs)
	return answerAll(ctx, arrived, blobs, err)
}

// answerAll gives the ranks that have come all blobs, or the error for which there is no group.
func answerAll(ctx context.Context, arrived []net.Conn, blobs [][]byte, err error) ([][]byte, error) {
	var message []byte
	if err != nil {
		message = refusalFor(err).answer()
	} else {
		message = putAnswer(0, blobs)
	}
	for r, conn := range arrived {
		if conn == nil {
			continue
		}
		if sendErr := send(ctx, conn, message); sendErr != nil && err == nil {
			err = &missingError{r, fmt.Errorf("rendezvous: rank %d of %d came and was lost: %w", r, len(blobs), sendErr)}
		}
	}
	if err != nil {
		return nil, err
	}
	return blobs, nil
}

func checkRendezvous(rank, size int, blob []byte) error {
	switch {
	case size < 1 || size > collective.MaxRanks:
		return fmt.Errorf("rendezvous: size %d is not allowed: want 1 to %d", size, collective.MaxRanks)
	case rank < 0 || rank >= size:
		return fmt.Errorf("rendezvous: rank %d is not allowed: want 0 to %d", rank, size-1)
	case len(blob) > maxPart:
		return fmt.Errorf("rendezvous: a blob of %d bytes is not allowed: want up to %d", len(blob), maxPart)
	}
	return nil
}

// listenAddr keeps a loopback address and widens any other to all interfaces:
// a host's own name often resolves to a loopback address there and to a real
// one elsewhere.
func listenAddr(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr // Listen returns the error for it
	}
	if ip, err := netip.ParseAddr(host); host == "localhost" || err == nil && ip.IsLoopback() {
		return addr
	}
	return ":" + port
}

// arrival is a connection that opened with a proper greeting.
type arrival struct {
	conn net.Conn
	greeting
}

// gather fills blobs[1:] and returns the connection of each rank, those of
// ranks that came even when it fails. It closes ln and every other connection.
func (m Meeting) gather(ctx context.Context, ln net.Listener, blobs [][]byte) ([]net.Conn, error) {
	size := len(blobs)
	arrived := make([]net.Conn, size)
	inside, leave := context.WithCancel(ctx)
	arrivals := make(chan arrival)
	var without atomic.Pointer[string] // who has not the secret was turned away
	var served sync.WaitGroup
	served.Go(func() {
		acceptor.Serve(ln, acceptor.PatienceFor(acceptor.Plain, m.Identity != nil), func(conn net.Conn, proven func() bool) {
			var g greeting
			greeted, err := m.Identity.Accept(conn)
			if err == nil {
				err = g.read(greeted)
			}
			if said := m.refuse(conn, err); said != "" {
				without.Store(&said)
			}
			if err != nil || !proven() {
				return
			}
			select {
			case arrivals <- arrival{greeted, g}:
			case <-inside.Done():
				_ = conn.Close()
			}
		})
	})
	defer served.Wait()
	defer leave()
	context.AfterFunc(inside, func() { _ = ln.Close() })

	var here absentees
	here.note(arrived)
	defer m.telling(here.absent)()
	var refusedText string
	for missing := size - 1; missing > 0; {
		select {
		case <-ctx.Done():
			if said := without.Load(); said != nil && refusedText == "" {
				refusedText = *said
			}
			err := fmt.Errorf("rendezvous: %s: %w%s", absent(arrived), context.Cause(ctx), refusedText)
			return arrived, &missingError{1 + slices.Index(arrived[1:], nil), err}
		case a := <-arrivals:
			if a.key != m.Key {
				refusedText = "; a process of another job was turned away"
				_ = send(ctx, a.conn, otherJob.answer())
				continue
			}
			if a.size != size || a.rank < 1 || a.rank >= size {
				reason := &Refusal{
					Text: fmt.Sprintf("rendezvous: rank 0 was started for %d ranks, this is rank %d of %d", size, a.rank, a.size),
					Between: &collective.Disagreement{
						Ranks: [2]int{0, a.rank}, What: [2]string{fmt.Sprintf("%d ranks", size), fmt.Sprintf("%d ranks", a.size)},
					},
				}
				refusedText = fmt.Sprintf("; a process that came as rank %d of %d was turned away", a.rank, a.size)
				_ = send(ctx, a.conn, reason.answer())
				continue
			}
			// The last one to come as a rank is that rank: the earlier one
			// may be a process that died and was started again.
			if old := arrived[a.rank]; old != nil {
				_ = send(ctx, old,
					(&Refusal{Text: fmt.Sprintf("rendezvous: another process came as rank %d", a.rank), Rank: &a.rank}).answer())
			} else {
				missing--
			}
			arrived[a.rank], blobs[a.rank] = a.conn, a.blob
			here.note(arrived)
		}
	}
	return arrived, nil
}

// refuse tells a rank with another secret why it is turned away, if its greeting shows that it is a rank. It returns a
// text about it for this rank's own messages.
func (m Meeting) refuse(conn net.Conn, err error) (said string) {
	var why *Refusal
	switch {
	case err == nil:
		return ""
	case errors.Is(err, identity.ErrOther): // it knows
		return "; a process with another MCAST_SECRET was turned away"
	case begins(identity.Heard(err), greetingMagic):
		why, said = noSecret, "; a process without MCAST_SECRET was turned away"
	case m.Identity == nil && errors.Is(err, errSecret):
		why, said = onlySecret, "; a process with MCAST_SECRET was turned away, and this one has none"
	default:
		return ""
	}
	_, _ = conn.Write(why.answer())  // it tries again otherwise
	_, _ = io.Copy(io.Discard, conn) // unread bytes would reset the connection, and the answer would be lost
	return said
}

// begins tells whether bytes are the first of a number.
func begins(b []byte, magic uint64) bool {
	return len(b) > 0 && bytes.HasPrefix(binary.BigEndian.AppendUint64(nil, magic), b)
}

// absent names the ranks that have not come.
func absent(arrived []net.Conn) string {
	var names []string
	for r := 1; r < len(arrived); r++ {
		if arrived[r] == nil {
			names = append(names, fmt.Sprint(r))
		}
	}
	const most = 8
	if len(names) == 1 {
		return fmt.Sprintf("rank %s of %d has not come", names[0], len(arrived))
	}
	more := ""
	if len(names) > most {
		more = fmt.Sprintf(" and %d more", len(names)-most)
		names = names[:most]
	}
	return fmt.Sprintf("ranks %s%s of %d have not come", strings.Join(names, ", "), more, len(arrived))
}

// callZero is the part of every rank but 0: it tries until rank 0 answers.
func (m Meeting) callZero(ctx context.Context, n hostnet.Network, addr string, g greeting) ([][]byte, error) {
	message := putGreeting(g)
	last := errors.New("no connection came about")
	var why atomic.Pointer[string]
	defer m.telling(func() string {
		text := "rank 0 at " + addr
		if last := why.Load(); last != nil {
			text += ": " + *last
		}
		return text
	})()
	for {
		blobs, err := m.callOnce(ctx, n, addr, g.size, message)
		var no *Refusal
		if err == nil || errors.As(err, &no) {
			return blobs, err
		}
		late := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
		if !late && ctx.Err() == nil || errors.Is(err, errNoAnswer) {
			last = err // Not the end of our patience, but what we ran into before.
			text := err.Error()
			why.Store(&text)
		}
		select {
		case <-ctx.Done():
			err := fmt.Errorf("rendezvous: rank %d of %d got no answer from rank 0 at %s (%w): %w", g.rank, g.size, addr, last,
				context.Cause(ctx))
			if errors.Is(last, errNoAnswer) {
				return nil, err // rank 0 may be there and wait for others
			}
			return nil, &missingError{0, err}
		case <-time.After(redialEvery):
		}
	}
}

func (m Meeting) callOnce(
	ctx context.Context, n hostnet.Network, addr string, size int, message []byte,
) (blobs [][]byte, err error) {
	conn, err := n.Dial(ctx, "tcp", addr, hostnet.Dialing{Segment: smallSegment})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	stop := context.AfterFunc(ctx, func() {
		patience := verdictLimit
		if !owntime.TimedOut(ctx) {
			patience = 0
		}
		_ = conn.SetDeadline(time.Now().Add(patience))
	})
	defer stop()
	greeted, err := m.Identity.Dial(conn)
	switch {
	case errors.Is(err, identity.ErrOther):
		return nil, wrongSecret
	case begins(identity.Heard(err), answerMagic):
		return nil, onlySecret
	case err == nil:
		_, err = greeted.Write(message)
	}
	if err == nil {
		blobs, err = readAnswer(greeted, size)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errNoAnswer
	}
	return blobs, err
}

// within runs f; reads and writes of f on conn end with ctx or, when it is not 0, after patience.
func within(ctx context.Context, conn net.Conn, patience time.Duration, f func() error) error {
	if patience > 0 {
		if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	err := f()
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	return err
}

// send writes a message and closes the connection. It is given a moment even when ctx has ended,
// so that the others learn why.
func send(ctx context.Context, conn net.Conn, message []byte) error {
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now().Add(answerLimit)) })()
	_, err := conn.Write(message)
	return errors.Join(err, conn.Close())
}

type greeting struct {
	key        uint64
	size, rank int
	blob       []byte
}

func putGreeting(g greeting) []byte {
	b := binary.BigEndian.AppendUint64(nil, greetingMagic)
	b = binary.BigEndian.AppendUint64(b, g.key)
	b = binary.BigEndian.AppendUint32(b, uint32(g.size)) // checkRendezvous bounds all three.
	b = binary.BigEndian.AppendUint32(b, uint32(g.rank))
	b = binary.BigEndian.AppendUint32(b, uint32(len(g.blob)))
	return append(b, g.blob...)
}

func (g *greeting) read(r io.Reader) error {
	var head [greetingSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[24:])
	if identity.Begins(head[:]) {
		return errSecret
	}
	if binary.BigEndian.Uint64(head[:]) != greetingMagic || n > maxPart {
		return errForeign
	}
	g.key = binary.BigEndian.Uint64(head[8:])
	g.size = int(binary.BigEndian.Uint32(head[16:]))
	g.rank = int(binary.BigEndian.Uint32(head[20:]))
	g.blob = make([]byte, n)
	_, err := io.ReadFull(r, g.blob)
	return err
}

func putAnswer(verdict uint32, parts [][]byte) []byte {
	b := binary.BigEndian.AppendUint64(nil, answerMagic)
	b = binary.BigEndian.AppendUint32(b, verdict)
	b = binary.BigEndian.AppendUint32(b, uint32(len(parts))) // at most collective.MaxRanks
	for _, part := range parts {
		b = binary.BigEndian.AppendUint32(b, uint32(len(part))) // at most maxPart
		b = append(b, part...)
	}
	return b
}

// readAnswer returns the blobs, or a refusal.
func readAnswer(r io.Reader, size int) ([][]byte, error) {
	var head [answerSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	verdict, count := binary.BigEndian.Uint32(head[8:]), binary.BigEndian.Uint32(head[12:])
	if binary.BigEndian.Uint64(head[:]) != answerMagic || verdict == 0 && int(count) != size ||
		verdict != 0 && count != 1 {
		return nil, errForeign
	}
	var parts [][]byte
	for range count {
		var length [4]byte
		if _, err := io.ReadFull(r, length[:]); err != nil {
			return nil, err
		}
		n := binary.BigEndian.Uint32(length[:])
		if n > maxPart {
			return nil, errForeign
		}
		part := make([]byte, n)
		if _, err := io.ReadFull(r, part); err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	if verdict != 0 {
		return nil, readRefusal(parts[0])
	}
	return slices.Clip(parts), nil
}
