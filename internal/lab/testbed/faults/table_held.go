package faults

// held is a row that a test elsewhere holds, because it needs more than a
// testbed has.
func held(over Over, id string, family Family, fault string, ends Ending, then string, bound Bound, test string) Row {
	return Row{
		ID: string(over) + "/" + id, Over: over, Family: family, Fault: fault, Then: then, Ends: ends, Bound: bound,
		Test: test,
	}
}

func goTest(dir, name string) string { return "go test ./" + dir + " -run ^" + name + "$" }

func pyTest(file, name string) string { return "pytest python/tests/" + file + ".py::" + name }

// heldRows are of several families.
var heldRows = []Row{
	held(SHM, "script-fails", Process, "the script of a rank ends by an exception, by `sys.exit`, by abort(), or is "+
		"killed, also where a forked DataLoader's child lives on",
		Errors, "the others are told at once, with the rank and the cause", AtOnce,
		pyTest("test_ending", "test_the_others_are_told")),
	held(SHM, "interrupted", Process, "^C comes while a rank waits", Succeeds, "the next wait has the outcome", AtOnce,
		pyTest("test_group", "test_the_outcome_that_an_interrupt_lost_is_there_for_the_next_wait")),
	held(Switch, "defect", Process, "`mcast switch` has a defect that one job's datagrams set off", Errors,
		"that job loses the switch, in words; other jobs go on", AtOnce,
		goTest("internal/switchd", "TestADefectEndsOneJob")),
	held(UDP, "sandbox", Host, "a sandbox refuses system calls with EPERM (epoll_pwait2)", Succeeds, "older ones are used",
		AtOnce,
		goTest("internal/transport/sys", "TestWaitInASandbox")),
	held(UDP, "sandbox-batches", Host, "a sandbox refuses system calls with EPERM (sendmmsg)", Succeeds,
		"older ones are used", AtOnce,
		goTest("internal/transport/sys", "TestBatchesInASandbox")),
	held(UDP, "no-descriptors-at-join", Resource, "a rank can open no socket while the fabric opens (EMFILE, ENFILE)",
		Succeeds, "all wait for it, until `MCAST_JOIN_TIMEOUT`; its log names the cause", JoinTimeout,
		goTest("internal/lab/world", "TestFoundSeeds")),
	held(UDP, "memory", Resource, "operations are large and many", Succeeds,
		"the protocol keeps at most a thousandth of the largest result and a MiB", AtOnce,
		goTest("internal/protocol/multicast", "TestMemoryOfManyLargeOperations")),
	held(UDP, "random-headers", Resource, "a stranger sends a million headers of random fields", Succeeds,
		"no operation fails, and no byte is wrong", AtOnce,
		goTest("internal/protocol/multicast", "TestRandomDatagramsAreHarmless")),
	held(UDP, "forged-source", Resource, "a host that knows the job sends what another rank would, before it does",
		Succeeds, "no byte is wrong", AtOnce,
		goTest("internal/group", "TestForgedSource")),
	held(UDP, "never-joins", Time, "a rank comes to the rendezvous, and never joins", Errors, "the others are told which",
		JoinTimeout,
		goTest("internal/group", "TestJoinTimeoutNamesWhoIsLate")),
	held(UDP, "dies-joining", Process, "a rank is killed, or loses power, between the rendezvous and its last connection",
		Errors,
		"the others name it, but a rank that comes over a second after others have left may name one of those", JoinTimeout,
		goTest("internal/lab/world", "TestDeadWhileJoining")),
	held(Switch, "numbers-wrap", Time, "2^31 and 2^32 Reduce-Scatters have gone through the switch, and it is lost",
		Succeeds, "no operation fails", AtOnce,
		goTest("internal/protocol/reducescatter", "TestNumbersWrapAround")),
}
