/* RULE(id, name, level, why): what NCCL asks of a net plugin. */
RULE(NET_LOAD, "net.load", MUST,
	"NCCL opens the library with RTLD_NOW and RTLD_LOCAL and reads a data symbol; a plugin that does not load or whose "
	"init fails is replaced by sockets.")
RULE(NET_PROPERTIES, "net.properties", MUST,
	"The topology search divides by speed and joins devices by name; sizes of zero stop every transfer.")
RULE(NET_ARGUMENTS, "net.arguments", SHOULD,
	"NCCL asks for no device beyond devices(); one that it does ask for by mistake is better refused than read past an "
	"array.")
RULE(NET_CONNECT, "net.connect", MUST,
	"A connect polled in turn with the peer's accept ends with both halves of one connection.")
RULE(NET_CONNECT_BLOCKS, "net.connect-never-blocks", MUST,
	"One thread of NCCL polls the connects and accepts of all channels in turn: a call that waits for its peer waits for "
	"ever.")
RULE(NET_ACCEPT_BLOCKS, "net.accept-never-blocks", MUST,
	"One thread of NCCL polls the connects and accepts of all channels in turn: a call that waits for its peer waits for "
	"ever.")
RULE(NET_HANDLE, "net.handle", MUST,
	"The handle is 128 bytes inside a larger message of NCCL: what is written behind them destroys the message.")
RULE(NET_BYTES, "net.bytes", MUST,
	"The bytes that arrive are the bytes that were sent.")
RULE(NET_GUARDS, "net.guards", MUST,
	"Neighbouring steps lie back to back in one buffer: memory outside the message belongs to another message.")
RULE(NET_SIZE, "net.size", MUST,
	"NCCL posts a receive for the largest slice and learns from test how much came, 0 included.")
RULE(NET_ORDER, "net.order", MUST,
	"Sends and receives of one connection match in the order in which they were posted.")
RULE(NET_EARLY_RECV, "net.early-done-receive", MUST,
	"When test says that a receive is done, the GPU is told to read the bytes at once.")
RULE(NET_EARLY_SEND, "net.early-done-send", MUST,
	"When test says that a send is done, the GPU is told to fill the buffer again at once.")
RULE(NET_COMPLETION, "net.completion", MUST,
	"Each posted request is done at some time, whatever is posted or polled beside it.")
RULE(NET_REQUEST_OUT, "net.request-overwritten", MUST,
	"*request holds NULL or 0x1 when irecv is called: it is an output, and what it held means nothing but a hint.")
RULE(NET_REQUESTS, "net.requests", MUST,
	"NCCL keeps up to 32 requests of a connection in flight; a plugin that cannot take one more says so with a NULL "
	"request.")
RULE(NET_SEPARATE, "net.comms-separate", MUST,
	"Each channel has its own connection: what is sent on one is received on that one alone.")
RULE(NET_THREADS, "net.threads", MUST,
	"Communicators have progress threads of their own: different connections are used at the same time.")
RULE(NET_MHANDLE, "net.memory-handle", MUST,
	"NCCL takes a NULL memory handle for memory that is not registered.")
RULE(NET_MEMORY, "net.memory", MUST,
	"Registrations overlap, nest and come from another thread while data move; each is good until its own deregistration.")
RULE(NET_CLOSE, "net.close", MUST,
	"An abort closes with requests in flight: close returns, and the peer gets completions or an error, not silence.")
RULE(NET_CLOSE_LISTEN, "net.close-listen", MUST,
	"NCCL closes the listen side right after accept; the connection stays.")
RULE(NET_LEAK, "net.leak", MUST,
	"A job opens and closes communicators for days: descriptors that close does not give back run out.")
RULE(NET_AGAIN, "net.init-again", MUST,
	"Each communicator initialises the plugin again, some versions without a finalize between, some after dlclose.")
RULE(NET_CONTEXTS, "net.contexts", MUST,
	"From v11 on each communicator has a context of its own, and several are open at once.")
RULE(NET_FORK, "net.fork", MUST,
	"Data loaders fork from the process that has loaded the plugin; the child exits and the parent goes on.")
RULE(NET_GROUP, "net.group", MUST,
	"With maxRecvs above 1 one receive takes several messages, told apart by their tags.")
RULE(NET_PROFILER, "net.profiler", MUST,
	"From v10 on NCCL hands what the plugin tells of its requests to its profiler unseen: it reads behind the handle of "
	"a start, and a stop without one, or a second one, is memory of others.")
RULE(NET_PEER_LOST, "net.peer-lost", SHOULD,
	"A peer that is gone should become an error of test: otherwise the job stands still until somebody notices.")
RULE(NET_GARBAGE, "net.garbage-handle", SHOULD,
	"A handle that no listen wrote should be refused, not trusted.")
