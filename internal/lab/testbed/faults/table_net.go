package faults

import (
	"slices"
	"syscall"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed/faults/worker"
)

// p2p is a row that a test of the plugin's connections holds.
func p2p(id string, family Family, fault string, ends Ending, then string, bound Bound, test string) Row {
	return Row{
		ID: "net/" + id, Over: Net, Family: family, Fault: fault, Then: then, Ends: ends, Bound: bound,
		Test: goTest("ncclnet/p2p", test),
	}
}

// Rows about NCCL's point-to-point messages: four ranks pass messages round by the plugin's
// connections. A rank that has lost a neighbour is told the neighbour's address. When that rank
// ends, its own neighbours are told its address in turn.
var netRows = slices.Concat(netTests, across(func(Over) Row {
	return Row{ID: "/rank-killed", Family: Process, Fault: "rank 2 of a ring is killed",
		Then: "its neighbours are told which address has gone, and the others when those end", Ends: Errors, Bound: AtOnce,
		Says: []string{"10.77.0."}, Fails: []int{2},
		Quick: true, job: job{during: signal(2, syscall.SIGKILL)}}
}, Net), across(func(Over) Row {
	return Row{ID: "/pauses", Family: Process,
		Fault: "rank 2 of a ring stands still for longer than `MCAST_TIMEOUT` (SIGSTOP)",
		Then:  "all wait: its kernel answers", Ends: Succeeds, Bound: AtOnce,
		job: job{during: then(signal(2, syscall.SIGSTOP), lasts(3*time.Second), signal(2, syscall.SIGCONT))}}
}, Net), across(func(Over) Row {
	return Row{ID: "/link-blinks", Family: Link, Fault: "the link of host 2 is down for 0.2 s",
		Then: "no message fails", Ends: Succeeds, Bound: Timeout,
		job: job{during: then(link(host(2), false), lasts(200*time.Millisecond), link(host(2), true))}}
}, Net), across(func(Over) Row {
	return Row{ID: "/link-down", Family: Link, Fault: "the link of host 2 is down for good",
		Then: "who receives from it is told, and the others when that rank ends", Ends: Errors, Bound: netTimeout,
		Says: []string{"10.77.0."}, Fails: []int{2},
		job: job{during: link(host(2), false)}}
}, Net), across(func(Over) Row {
	return Row{ID: "/loses-1-percent", Family: Link, Fault: "all links lose 1 % of packets in each direction",
		Then: "no message fails", Ends: Succeeds, Bound: Timeout,
		job: job{during: everywhere(func(p target) func(*Scene) error { return loss(p, testbed.Loss{Share: 0.01}) })}}
}, Net), across(func(Over) Row {
	return Row{ID: "/mtu-shrinks", Family: Size,
		Fault: "the MTU of a switch's port to host 2 shrinks from 9000 to 1500 bytes",
		Then: "who receives from it or by it is told, the sender's log has the cause, and the others are told when that " +
			"rank ends (Linux 5.4 and later)", Ends: Errors, Bound: Bound{Of: "MCAST_TIMEOUT", Plus: 3 * time.Second},
		Says: []string{"10.77.0."},
		job:  job{during: mtu(host(2), 1500)}}
}, Net), across(func(Over) Row {
	return Row{ID: "/flow-dies", Family: Flow, Fault: "nothing passes between hosts 1 and 2 any more",
		Then: "who receives is told, and the others when that rank ends", Ends: Errors, Bound: netTimeout,
		Says: []string{"10.77.0."},
		job:  job{during: flow(host(1), host(2), testbed.Loss{Share: 1})}}
}, Net), across(func(Over) Row {
	return Row{ID: "/no-descriptors", Family: Resource,
		Fault: "rank 1 can open no file or socket for longer than `MCAST_TIMEOUT` (EMFILE)",
		Then:  "no message fails", Ends: Succeeds, Bound: AtOnce,
		job: job{during: then(descriptors(host(1), 0), lasts(3*time.Second), descriptors(host(1), -1))}}
}, Net), across(func(Over) Row {
	return Row{ID: "/late", Family: Time,
		Fault: "rank 3 comes to a message later than the others by one and a half times `MCAST_TIMEOUT`",
		Then:  "all wait for it", Ends: Succeeds, Bound: AtOnce,
		job: job{acts: []worker.Act{{Rank: 3, Round: 5, Before: worker.Ring, Do: "wait", For: 3 * time.Second}}}}
}, Net))

// netTimeout is within which a receiver notices that a host is gone: keepalive counts in seconds.
var netTimeout = Bound{Of: "MCAST_TIMEOUT", Plus: 2 * time.Second}

// netTests are rows that tests of the plugin's connections hold.
var netTests = []Row{
	p2p("killed", Process, "a rank that sends is killed (SIGKILL)", Errors,
		"the receives that it leaves open fail, and no others", AtOnce, "TestKill"),
	p2p("closes", Process, "a rank closes a connection on which the other still waits", Errors,
		"requests of the other fail; what was sent before arrives", AtOnce, "TestPeerCloses"),
	p2p("closes-forked", Process, "a rank closes a connection, and a forked child keeps the socket", Succeeds,
		"nothing is sent any more from memory that is the caller's again", AtOnce, "TestCloseForked"),
	p2p("disagrees", Process, "a send is larger than the receive that it meets", Errors, "both ends are told the sizes",
		AtOnce, "TestMismatch"),
	p2p("garbage", Process, "what arrives is no message", Errors, "the connection fails, and no memory is touched", AtOnce,
		"TestGarbage"),
	p2p("host-vanishes", Host, "the host of a receiver is gone, without a word", Errors,
		"sends fail, and name the address", Timeout, "TestSilentHost"),
	p2p("half-open", Path, "a peer greets and then says no more", Errors, "accepting fails, and names the address",
		Timeout, "TestHalfOpen"),
	p2p("on-the-path", Path,
		"somebody on the path changes, repeats or leaves out what passes; `MCAST_SECRET`, kernels with TLS", Errors,
		"the connection fails and says so, and no changed byte is taken", AtOnce, "TestSealedOnThePath"),
	p2p("unreachable", Path, "nobody listens where a handle leads", Errors, "connecting fails, and names the address",
		Timeout, "TestConnectFails"),
	p2p("strangers", Resource, "strangers connect and say nothing, or nonsense", Succeeds, "ranks connect all the same",
		AtOnce, "TestStrangers"),
	p2p("no-ring", Resource, "shared memory cannot be passed to a peer of the same host", Succeeds,
		"the connection goes over TCP", AtOnce, "TestRingNotTaken"),
	p2p("bad-ring", Resource, "shared memory that a peer passes could shrink", Errors, "it is not taken", AtOnce,
		"TestBadRing"),
	p2p("no-kernel-tls", Resource, "the kernel of one end has no TLS; `MCAST_NET_TLS=require`", Errors,
		"connecting fails, and both ends say which kernel lacks it", AtOnce, "TestSealAgreement"),
	p2p("no-zerocopy", Resource, "the kernel refuses to send without a copy", Errors,
		"an error, or sends with a copy; no wrong byte", AtOnce, "TestZerocopyFault"),
	p2p("late-receiver", Time, "a receiver reads nothing for longer than `MCAST_TIMEOUT`", Succeeds,
		"the sender waits for it", AtOnce, "TestLateReceiver"),
	p2p("abandoned", Time, "a connection is made and never asked for", Succeeds, "it is closed, and its handle says so",
		Timeout, "TestAbandoned"),
}
