// Package route decides how the Reduce-Scatters of a group go, alike on all ranks: through a switch or directly from
// rank to rank. A Router is told of each Event and returns each Order that follows; it has no clock, socket, goroutine
// or lock. internal/group carries out the orders.
//
// An epoch is an attempt of all ranks to use a switch. It ends at all of them: when one that had
// all ranks joined loses the switch, or cannot go on joining, it gives notice over the mesh. All
// ranks take part in every epoch, so all agree equally often and about the same things.
//
// The words are in docs/reference/glossary.md.
package route

import "time"

// Event is something that has happened. An answer to an order comes once the order was carried out; other events may
// come at any time.
type Event interface{ event() }

// Events.
type (
	// Started says that the first operation was posted.
	Started struct{}
	// Agreed answers Agree with the records of all ranks, in rank order.
	Agreed struct{ Records [][]byte }
	// Joined answers Join: all ranks have sessions with the switch, and it answers this one's
	// datagrams. Operations is how many have gone through switches so far.
	Joined struct{ Operations uint64 }
	// JoinFailed answers Join. All: all ranks had sessions, so others may use the switch already. Waited: this rank had a
	// session, and others had none yet, so that the cause is another rank's.
	JoinFailed struct {
		Reason string
		All    bool
		Waited bool
	}
	// Noticed says that a rank, maybe this one, has given notice that an epoch ends. Their numbers
	// count up; of several ranks that end the same one, each rank hears one at least.
	Noticed struct {
		Epoch uint32
		Rank  int
		Text  string
	}
	// Lost says that the switch that was joined under this epoch is lost. Mismatch: ranks called
	// different things, which is no fault of the switch.
	Lost struct {
		Epoch    uint32
		Text     string
		Mismatch bool
	}
	// Stopped answers Stop with what other ranks must know to finish directly.
	Stopped struct{ Record []byte }
	// StreamsOpen answers OpenStreams.
	StreamsOpen struct{}
	// Resumed answers Resume. Operations is how many have gone through switches so far.
	Resumed struct{ Operations uint64 }
)

// Order is something to be done. Orders are carried out one after the other.
type Order interface{ order() }

// Orders to the mesh.
type (
	// Agree gives every rank what every rank brings.
	Agree struct{ Record []byte }
	// Notify gives notice that an epoch ends.
	Notify struct {
		Epoch uint32
		Text  string
	}
	// Report ends the group: ranks called different things.
	Report struct{ Text string }
)

// Orders to the session with a switch.
type (
	// Join joins the switch at an address. It begins after a pause, and lasts until all ranks have
	// joined, for so long at most; 0: as long as it takes. It is the only order during which
	// others are given.
	Join struct {
		Epoch   uint32
		Address string
		After   time.Duration
		Within  time.Duration
	}
	// Cancel has a Join end soon. It is answered all the same.
	Cancel struct{}
	// Close ends the session, if there is one, of the Join that was answered last.
	Close struct{}
)

// Orders to the engine, and to the direct path. A Join that was answered with Joined gave the
// connection with the switch; from Begin or Use on it is the engine's, until Stop closes it.
type (
	// Begin lets the first operations go: through the switch joined under that epoch, or over
	// streams.
	Begin struct {
		Epoch    uint32
		Switched bool
	}
	// Use says that this rank has joined a switch again.
	Use struct{}
	// Stop has no operation go through a switch any more. Those under way wait.
	Stop struct{ Epoch uint32 }
	// OpenStreams connects the direct path. It waits for every rank, however late that comes.
	OpenStreams struct{}
	// Resume goes on directly, given all ranks' records.
	Resume struct{ Records [][]byte }
)

// Orders to tell people something.
type (
	// SetReason says why operations go directly from now on.
	SetReason struct{ Reason string }
	// TellDirect warns that operations go directly though there are switches.
	TellDirect struct{ Reason string }
	// TellLost is TellDirect where a switch was in use.
	TellLost struct{ Reason string }
	// TellSwitched says which switch is in use, or will soon be.
	TellSwitched struct {
		Epoch   uint32
		Address string
	}
	// TellFailure says that an attempt to join again has failed.
	TellFailure struct {
		Epoch  uint32
		Reason string
	}
)

func (Started) event()     {}
func (Agreed) event()      {}
func (Joined) event()      {}
func (JoinFailed) event()  {}
func (Noticed) event()     {}
func (Lost) event()        {}
func (Stopped) event()     {}
func (StreamsOpen) event() {}
func (Resumed) event()     {}

func (Agree) order()        {}
func (Notify) order()       {}
func (Report) order()       {}
func (Join) order()         {}
func (Cancel) order()       {}
func (Close) order()        {}
func (Begin) order()        {}
func (Use) order()          {}
func (Stop) order()         {}
func (OpenStreams) order()  {}
func (Resume) order()       {}
func (SetReason) order()    {}
func (TellDirect) order()   {}
func (TellLost) order()     {}
func (TellSwitched) order() {}
func (TellFailure) order()  {}
