package faults

// p2p is a row that a test of the plugin's connections holds.
func p2p(id string, family Family, fault string, ends Ending, then string, bound Bound, test string) Row {
	return Row{ID: "net/" + id, Over: Net, Family: family, Fault: fault, Then: then, Ends: ends, Bound: bound, Test: "go test ./internal/p2p -run ^" + test + "$"}
}

// Rows about NCCL's point-to-point messages.
var netRows = []Row{
	p2p("killed", Process, "a rank that sends is killed (SIGKILL)", Errors, "the receives that it leaves open fail, and no others", AtOnce, "TestKill"),
	p2p("closes", Process, "a rank closes a connection on which the other still waits", Errors, "requests of the other fail; what was sent before arrives", AtOnce, "TestPeerCloses"),
	p2p("closes-forked", Process, "a rank closes a connection of which a forked child keeps the socket", Succeeds, "nothing is sent any more from memory that is the caller's again", AtOnce, "TestCloseForked"),
	p2p("disagrees", Process, "a send is larger than the receive that it meets", Errors, "both ends are told the sizes", AtOnce, "TestMismatch"),
	p2p("garbage", Process, "what arrives is no message", Errors, "the connection fails, and no memory is touched", AtOnce, "TestGarbage"),
	p2p("host-vanishes", Host, "the host of a receiver is gone, without a word", Errors, "sends fail, and name the address", Timeout, "TestSilentHost"),
	p2p("half-open", Path, "a peer greets and then says no more", Errors, "accepting fails, and names the address", Timeout, "TestHalfOpen"),
	p2p("unreachable", Path, "nobody listens where a handle leads", Errors, "connecting fails, and names the address", Timeout, "TestConnectFails"),
	p2p("strangers", Resource, "strangers connect and say nothing, or nonsense", Succeeds, "ranks connect all the same", AtOnce, "TestStrangers"),
	p2p("no-ring", Resource, "shared memory cannot be passed to a peer of the same host", Succeeds, "the connection goes over TCP", AtOnce, "TestRingNotTaken"),
	p2p("bad-ring", Resource, "shared memory that a peer passes could shrink", Errors, "it is not taken", AtOnce, "TestBadRing"),
	p2p("no-zerocopy", Resource, "the kernel refuses to send without a copy", Errors, "an error, or sends with a copy; no wrong byte", AtOnce, "TestZerocopyFault"),
	p2p("late-receiver", Time, "a receiver reads nothing for longer than `MCAST_TIMEOUT`", Succeeds, "the sender waits for it", AtOnce, "TestLateReceiver"),
	p2p("abandoned", Time, "a connection is made and never asked for", Succeeds, "it is closed, and its handle says so", Timeout, "TestAbandoned"),
}
