/* RULE(id, name, level, why): what NCCL asks of CollNet and of a tuner. */
RULE(COLL_PROPERTIES, "coll.properties", MUST,
	"NCCL joins the CollNet device and the net device by name; with two names CollNet is off, without a word.")
RULE(COLL_ARGUMENTS, "coll.arguments", MUST,
	"A rank, a device or a handle that cannot be is an error to report, not a crash.")
RULE(COLL_CONNECT, "coll.connect", MUST,
	"Connect is called once, blocks, and joins all ranks; NCCL closes the listen side right after it.")
RULE(COLL_VERDICT, "coll.verdict", MUST,
	"NCCL judges connect on each node alone: a rank that succeeds while another fails waits for it for ever in "
	"ncclCommInitRank.")
RULE(COLL_VERDICT_TIME, "coll.verdict-in-time", MUST,
	"When a rank never comes the others' connect has to give up: nothing in NCCL interrupts it.")
RULE(COLL_SUPPORT, "coll.reduce-support", MUST,
	"NCCL asks for each type and operation, and uses CollNet where all ranks say yes: the answer is 0 or 1, and the same "
	"each time.")
RULE(COLL_BYTES, "coll.bytes", MUST,
	"Each byte of a window is the byte of the rank whose slot it lies in.")
RULE(COLL_WINDOW, "coll.window", MUST,
	"NCCL cuts an operation into windows of all ranks' bytes, in order: windowOffset says where a window begins, and its "
	"memory begins there too.")
RULE(COLL_STRADDLING, "coll.straddling", MUST,
	"A window may end inside one rank's slot and hold several others: bytesPerRank is no multiple of it.")
RULE(COLL_OWN_PART, "coll.own-part", MUST,
	"NCCL copies the whole window out of its staging buffer: the plugin writes the own part into it.")
RULE(COLL_IN_PLACE, "coll.in-place", MUST,
	"With registered buffers the own part may already lie where it belongs; a sum may go where its input was.")
RULE(COLL_EMPTY_SLOT, "coll.empty-slot", MUST,
	"When the own slot does not touch the window, sendData or recvData points at memory that belongs to something else.")
RULE(COLL_GUARDS, "coll.guards", MUST,
	"The next slot of the staging buffer belongs to another window that is in flight.")
RULE(COLL_EARLY, "coll.early-done", MUST,
	"When test says that a window is done, the GPU is told to read it, and to fill the send slot again.")
RULE(COLL_COMPLETION, "coll.completion", MUST,
	"Each posted operation is done at some time on every rank, while NCCL polls the others.")
RULE(COLL_REQUESTS, "coll.requests", MUST,
	"A plugin takes eight windows in flight or says with a NULL request that it cannot now; NCCL then makes the same "
	"call again.")
RULE(COLL_SUMS, "coll.sums", MUST,
	"A type and operation that reduceSupport accepts gives the right result for each element.")
RULE(COLL_ROUNDING, "coll.rounding", SHOULD,
	"Sums of 16-bit floats are accumulated in f32 and rounded once; rounding at each rank loses what training needs.")
RULE(COLL_AGREEMENT, "coll.agreement", MUST,
	"All ranks hold the same bits after an Allreduce: replicas that differ in one bit drift apart.")
RULE(COLL_MEMORY, "coll.memory", MUST,
	"NCCL registers one region several times, for send and receive of each channel; each handle is good until its own "
	"deregistration.")
RULE(COLL_SEPARATE, "coll.comms-separate", MUST,
	"Several communicators, each with a CollNet comm of its own, are in flight at the same time.")
RULE(COLL_FLUSH, "coll.flush", MUST,
	"After a receive into GPU memory NCCL flushes and waits for that request as for any other; NULL means that there is "
	"nothing to wait for.")
RULE(COLL_CLOSE, "coll.close", MUST,
	"An abort closes with operations in flight: close returns.")
RULE(COLL_ABORT, "coll.abort", MUST,
	"An abort deregisters and frees the buffers of operations in flight before it closes the comm: from the "
	"deregistration on nothing touches them.")
RULE(COLL_REFUSED, "coll.refused", SHOULD,
	"A call that is refused leaves nothing behind: its buffers can be deregistered, and the comm goes on.")
RULE(COLL_PEER_LOST, "coll.peer-lost", SHOULD,
	"A rank that is gone should become an error of test on the others: otherwise the job stands still until somebody "
	"notices.")
RULE(COLL_AGAIN, "coll.init-again", MUST,
	"Each communicator initialises CollNet again in the same process.")
RULE(TUNER_LIFE, "tuner.init", MUST,
	"A tuner is initialised once a communicator, also where there is one node only, and several live at the same time.")
RULE(TUNER_COLLECTIVES, "tuner.collectives", MUST,
	"What NCCL marks with -1 cannot run: a cost written there for Broadcast, Reduce or Send/Recv hangs or stops the job.")
RULE(TUNER_UNCONNECTED, "tuner.unconnected", MUST,
	"CollNet chosen where it is not connected makes NCCL divide by zero channels (SIGFPE).")
RULE(TUNER_TABLE, "tuner.table", MUST,
	"The table has as many rows and columns as the call says: what is written outside destroys NCCL's stack.")
RULE(TUNER_COST, "tuner.cost", MUST,
	"A cost is -1 or a time of 0 or more: NCCL takes the smallest, and NaN compares with nothing.")
RULE(TUNER_NEGATIVE, "tuner.negative", MUST,
	"NCCL 2.31 takes the smallest number of its table, below 0 too: a tuner that writes -1 over a cost chooses what it "
	"meant to rule out.")
RULE(TUNER_CROWDED, "tuner.crowded", MUST,
	"With several GPUs a node -1 says that one of them has no CollNet connection: a cost written over it is a crash.")
RULE(TUNER_AGREEMENT, "tuner.agreement", MUST,
	"Each rank asks its own tuner: ranks that get different algorithms or windows wait for each other for ever.")
