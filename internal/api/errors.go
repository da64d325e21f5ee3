package api

// Error is one row of the table of errors.
type Error struct {
	Code      int      // in mcast.h; 0: Python alone raises it
	Name      string   // of the code, without MCAST_E_
	Exception string   // Python's class
	Go        []string // of pkg/collnet
	NCCL      string   // what the plugin returns for it, without NCCL_
	Builtin   string   // what else a Python program may catch it as
	Faults    []string // the kinds of mesh.Fault that it stands for
	Match     string   // a Go expression that says whether it is the kind of err, which is no fault
	What      string   // what went wrong, one sentence
	Then      string   // what becomes of the group, and what to do
}

// Errors returns the table, in the order in which Match is tried.
func Errors() []Error { return errorTable }

// errorTable is the table. A code keeps its number for ever.
var errorTable = []Error{
	{Code: 1, Name: "ARGUMENT", NCCL: "INVALID_ARGUMENT",
		Exception: "ArgumentError", Go: []string{"ArgumentError"}, Builtin: "ValueError",
		Match: "errors.As(err, new(*group.ArgumentError))",
		What:  "A wrong argument, setting or option; the message names it and the allowed values.",
		Then:  "Nothing was begun, and the group goes on."},
	{Code: 2, Name: "UNAVAILABLE", NCCL: "SYSTEM_ERROR",
		Exception: "UnavailableError", Go: []string{"UnavailableError"},
		Match: "errors.Is(err, fabric.ErrUnavailable)",
		What:  "The machine lacks something that the group needs; the message says what.",
		Then:  "There is no group: provide it, or set what the message names."},
	{Code: 3, Name: "TIMEOUT", NCCL: "REMOTE_ERROR",
		Exception: "WaitTimeoutError", Go: []string{"TimeoutError"}, Builtin: "TimeoutError",
		Match: "errors.Is(err, context.DeadlineExceeded)",
		What:  "The time given to a wait or to a join ran out (a join has MCAST_JOIN_TIMEOUT at most).",
		Then:  "The operation goes on: wait again. After a join there is no group."},
	{Code: 4, Name: "RANK", NCCL: "REMOTE_ERROR",
		Exception: "RankError", Go: []string{"RankError", "PathError"},
		Faults: []string{"Dead", "Path", "Left", "Aborted"},
		Match:  "aboutRank(err)",
		What:   "A rank died, stopped, was cut off, left or aborted; its number comes with the error.",
		Then:   "The group has ended on all ranks: read the log of that rank first."},
	{Code: 5, Name: "MISMATCH", NCCL: "INVALID_USAGE",
		Exception: "MismatchError", Go: []string{"MismatchError"},
		Faults: []string{"Mismatch"},
		Match:  "aboutMismatch(err)",
		What:   "Ranks disagree about an operation or a setting.",
		Then:   "The group has ended on all ranks: the script calls different things on them, or settings differ."},
	{Code: 6, Name: "CLOSED", NCCL: "SYSTEM_ERROR",
		Exception: "ClosedError", Go: []string{"ClosedError"},
		Faults: []string{"Closed"},
		Match:  "errors.Is(err, errClosed)",
		What:   "The group, endpoint or work is unknown or closed.",
		Then:   "It was used after this rank had closed or destroyed it."},
	{Code: 7, Name: "BUSY", NCCL: "SYSTEM_ERROR",
		Exception: "BusyError", Go: []string{"BusyError"},
		Match: "errors.Is(err, engine.ErrBusy)",
		What:  "Too many operations, 1024, are waiting already.",
		Then:  "The group goes on: wait for one of them. torch_mcast does so by itself."},
	{Code: 8, Name: "INTERNAL", NCCL: "SYSTEM_ERROR",
		Exception: "InternalError",
		Faults:    []string{"Local"},
		What:      "Something else failed: the operating system, or the library has a defect.",
		Then:      "The message says what failed; if the machine is not at fault, report it."},
	{Exception: "LibraryError", Builtin: "OSError",
		What: "The shared library was not found, or does not fit this package.",
		Then: "Run `make build`, or set MCAST_LIBRARY."},
	{Exception: "ForkError",
		What: "The library was used in a child of fork() after its parent had loaded it.",
		Then: "Start the child by spawn, or fork before the first group is made."},
	{Exception: "UnsupportedError", Builtin: "NotImplementedError",
		What: "The backend does not have this part of torch.distributed.",
		Then: "Use another group for it, such as one of gloo (docs/reference/torch.md)."},
}
