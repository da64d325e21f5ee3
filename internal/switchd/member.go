package switchd

import (
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/session"
	"github.com/torch-mcast/torch-mcast/internal/transport/datagram"
)

// member is who contributes: a rank, or a switch with ranks below it.
type member struct {
	peer    *session.Peer
	ranks   []int       // sorted
	inGroup map[int]int // which ranks of the group they are
	chunk   int         // bytes of elements that a datagram carries on every path to it
	room    int         // bytes of chunks a stripe and member below; 0: nothing is below
	sockets []*datagram.Socket
}

func (m *member) String() string {
	if !m.peer.Child {
		return m.peer.Name()
	}
	return fmt.Sprintf("the switch at %v, with ranks %s,", m.peer.Remote(), list(named(m.ranks, m.inGroup)))
}

// location names the member and where it is.
func (m *member) location() string {
	if m.peer.Child {
		return session.NodeAt(m.peer.Remote())
	}
	return fmt.Sprintf("%v at %v", m, m.peer.Remote())
}

// named returns ranks by the numbers that they have in the group.
func named(ranks []int, inGroup map[int]int) []int {
	all := make([]int, len(ranks))
	for i, r := range ranks {
		all[i] = inGroup[r]
	}
	return all
}

// list names ranks, not all if they are many: what members are told must fit a frame.
func list(ranks []int) string {
	const most = 64
	if len(ranks) > most {
		return fmt.Sprintf("%v and %d more", ranks[:most], len(ranks)-most)
	}
	return fmt.Sprint(ranks)
}

func (m *member) close() {
	for _, socket := range m.sockets {
		_ = socket.Close() // nothing to be done
	}
}
