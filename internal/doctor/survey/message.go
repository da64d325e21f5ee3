package survey

import (
	"bytes"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/doctor"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
)

// Between each host and the one that coordinates, over TCP, JSON values: a hello, and then an answer
// to each order.

const (
	magic    = "mcast-doctor-3" // changes with the messages
	maxHello = 1 << 20          // bytes
	maxHosts = 1 << 12
)

// hello is what a host says when it comes, in this order: see opening.
type hello struct {
	Magic string       `json:"magic"`
	Token string       `json:"token"`
	Visit string       `json:"visit"` // the same when it comes again
	Place Place        `json:"place"`
	Facts doctor.Facts `json:"facts"`
}

// knock is what a host that cannot connect says by UDP, in a datagram.
type knock struct {
	Magic   string     `json:"magic"`
	Token   string     `json:"token"`
	Name    string     `json:"name"`
	Address netip.Addr `json:"address"`
}

func proves(magicOf, token, want string) bool {
	return magicOf == magic && subtle.ConstantTimeCompare([]byte(token), []byte(want)) == 1
}

// order is what a host is to do next.
type order struct {
	Do string `json:"do"` // one of those below

	// Of doOpen: all hosts, this one's number among them, and what tells the survey from others.
	Roster []Place    `json:"roster,omitempty"`
	Self   int        `json:"self"`
	Key    uint64     `json:"key,omitempty"`
	Group  netip.Addr `json:"group,omitzero"`
	Port   uint16     `json:"port,omitempty"`

	// Of doCast and doTrain: where the probes of each host are heard; 0: not.
	Ports []uint16 `json:"ports,omitempty"`

	// Of doTrain: how fast Peer sends, and packets of how many bytes.
	Mbps   float64 `json:"mbps,omitempty"`
	Packet int     `json:"packet,omitempty"`

	// Of a match: the other host, whether this one has the lower number, and which try it is.
	Peer  int    `json:"peer"`
	First bool   `json:"first"`
	Batch uint32 `json:"batch"`
}

// Orders.
const (
	doOpen   = "open"   // begin to answer others
	doCast   = "cast"   // send packets of all sizes to all, and listen
	doTrain  = "train"  // send a train, if this host is Peer, and else listen
	doMeet   = "meet"   // of a match: connect, send datagrams, measure the round trip
	doStream = "stream" // of a match: send a stream; or wait, where the other one sends
	doCount  = "count"  // of a match: say what has come
	doLoop   = "loop"   // send a stream to itself
	doEnd    = "end"
	doRefuse = "refuse" // the hello was not right
)

// answer is what came of an order.
type answer struct {
	Error string        `json:"error,omitempty"`
	Port  uint16        `json:"port,omitempty"`
	Heard []udp.Heard   `json:"heard,omitempty"` // by host
	TCP   bool          `json:"tcp,omitempty"`
	RTT   time.Duration `json:"rtt,omitempty"`   // median
	Least time.Duration `json:"least,omitempty"` // of the round trips
	Mbps  float64       `json:"mbps,omitempty"`
	Got   [flows]int    `json:"got"`

	Trains  trains `json:"trains,omitzero"`   // that it has sent
	Dropped int    `json:"dropped,omitempty"` // of a train, by this host
}

// link is a connection between the coordinator and a host.
type link struct {
	net.Conn
	in  *json.Decoder
	out *json.Encoder
}

func newLink(conn net.Conn) *link {
	return &link{Conn: conn, in: json.NewDecoder(conn), out: json.NewEncoder(conn)}
}

// opening is the beginning of a hello with a token: nothing is kept from a client that says anything else.
func opening(token string) []byte {
	word, _ := json.Marshal(token) // of a string there is no error
	return fmt.Appendf(nil, `{"magic":"%s","token":%s,`, magic, word)
}

// readHello reads the first message on a connection, perhaps a stranger's, and returns the link for the messages that
// follow. said is the beginning of the message, which was read already.
func readHello(conn net.Conn, said []byte) (h hello, l *link, err error) {
	bounded := &io.LimitedReader{R: io.MultiReader(bytes.NewReader(said), conn), N: maxHello}
	l = &link{Conn: conn, in: json.NewDecoder(bounded), out: json.NewEncoder(conn)}
	err = l.in.Decode(&h)
	const forever = 1 << 62
	bounded.N = forever
	return h, l, err
}

// ask sends an order and waits for its answer, in which the host may say that it cannot.
func (l *link) ask(o order, patience time.Duration) (a answer, err error) {
	if err := l.SetDeadline(time.Now().Add(patience)); err != nil {
		return a, err
	}
	if err := l.out.Encode(o); err != nil {
		return a, err
	}
	return a, l.in.Decode(&a)
}

// segment is the largest segment of TCP between hosts and the coordinator, so that a path that
// carries only small packets is measured, and does not stall the survey. The least MTU of IPv6
// carries it.
const segment = 1200

// small sets it on a socket.
func small(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, segment)
	})
	return errors.Join(err, failed)
}
