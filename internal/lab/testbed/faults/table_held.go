package faults

func goTest(dir, name string) string { return "go test ./" + dir + " -run ^" + name + "$" }

func pyTest(file, name string) string { return "pytest python/tests/" + file + ".py::" + name }

// heldRows are held by tests elsewhere, because they need more than a testbed has.
var heldRows = []Row{
	{
		ID: "shm/script-fails", Over: SHM, Family: Process, Ends: Errors, Bound: AtOnce,
		Fault: "the script of a rank ends by an exception, by `sys.exit`, by abort(), or is killed, also where a forked " +
			"DataLoader's child lives on",
		Then: "the others are told at once, with the rank and the cause",
		Test: pyTest("test_ending", "test_the_others_are_told"),
	},
	{
		ID: "shm/interrupted", Over: SHM, Family: Process, Ends: Succeeds, Bound: AtOnce,
		Fault: "^C comes while a rank waits",
		Then:  "the next wait has the outcome",
		Test:  pyTest("test_group", "test_the_outcome_that_an_interrupt_lost_is_there_for_the_next_wait"),
	},
	{
		ID: "switch/defect", Over: Switch, Family: Process, Ends: Errors, Bound: AtOnce,
		Fault: "`mcast switch` has a defect that one job's datagrams set off",
		Then:  "that job loses the switch, in words; other jobs go on",
		Test:  goTest("internal/switchd", "TestADefectEndsOneJob"),
	},
	{
		ID: "udp/sandbox", Over: UDP, Family: Host, Ends: Succeeds, Bound: AtOnce,
		Fault: "a sandbox refuses system calls with EPERM (epoll_pwait2)",
		Then:  "older ones are used",
		Test:  goTest("internal/transport/sys", "TestWaitInASandbox"),
	},
	{
		ID: "udp/sandbox-batches", Over: UDP, Family: Host, Ends: Succeeds, Bound: AtOnce,
		Fault: "a sandbox refuses system calls with EPERM (sendmmsg)",
		Then:  "older ones are used",
		Test:  goTest("internal/transport/sys", "TestBatchesInASandbox"),
	},
	{
		ID: "udp/no-descriptors-at-join", Over: UDP, Family: Resource, Ends: Succeeds, Bound: JoinTimeout,
		Fault: "a rank can open no socket while the fabric opens (EMFILE, ENFILE)",
		Then:  "all wait for it, until `MCAST_JOIN_TIMEOUT`; its log names the cause",
		Test:  goTest("internal/lab/world", "TestFoundSeeds"),
	},
	{
		ID: "udp/memory", Over: UDP, Family: Resource, Ends: Succeeds, Bound: AtOnce,
		Fault: "operations are large and many",
		Then:  "the protocol keeps at most a thousandth of the largest result and a MiB",
		Test:  goTest("internal/protocol/multicast", "TestMemoryOfManyLargeOperations"),
	},
	{
		ID: "udp/random-headers", Over: UDP, Family: Resource, Ends: Succeeds, Bound: AtOnce,
		Fault: "a stranger sends a million headers of random fields",
		Then:  "no operation fails, and no byte is wrong",
		Test:  goTest("internal/protocol/multicast", "TestRandomDatagramsAreHarmless"),
	},
	{
		ID: "udp/forged-source", Over: UDP, Family: Resource, Ends: Succeeds, Bound: AtOnce,
		Fault: "a host that knows the job sends what another rank would, before it does",
		Then:  "no byte is wrong",
		Test:  goTest("internal/group", "TestForgedSource"),
	},
	{
		ID: "udp/never-joins", Over: UDP, Family: Time, Ends: Errors, Bound: JoinTimeout,
		Fault: "a rank comes to the rendezvous, and never joins",
		Then:  "the others are told which",
		Test:  goTest("internal/group", "TestJoinTimeoutNamesWhoIsLate"),
	},
	{
		ID: "udp/dies-joining", Over: UDP, Family: Process, Ends: Errors, Bound: JoinTimeout,
		Fault: "a rank is killed, or loses power, between the rendezvous and its last connection",
		Then:  "the others name it, but a rank that comes over a second after others have left may name one of those",
		Test:  goTest("internal/lab/world", "TestDeadWhileJoining"),
	},
	{
		ID: "switch/numbers-wrap", Over: Switch, Family: Time, Ends: Succeeds, Bound: AtOnce,
		Fault: "2^31 and 2^32 Reduce-Scatters have gone through the switch, and it is lost",
		Then:  "no operation fails",
		Test:  goTest("internal/protocol/reducescatter", "TestNumbersWrapAround"),
	},
}
