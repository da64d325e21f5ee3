package advise

import (
	"regexp"
	"strings"
)

// Kind is what a collective does.
type Kind string

// The kinds with a known law of bytes over links, and Broadcast. All others take the same path with torch-mcast as
// without.
const (
	Allgather     Kind = "all_gather"
	ReduceScatter Kind = "reduce_scatter"
	Allreduce     Kind = "all_reduce"
	Broadcast     Kind = "broadcast"
	Other         Kind = "other"
)

// kinds are all of them; a name's is the first one that it begins with.
var kinds = []Kind{Allgather, ReduceScatter, Allreduce, Broadcast, "all_to_all", "barrier", "gather", "scatter",
	"reduce", "sendrecv", "send", "recv"}

// kindOf returns the kind of a name that torch, gloo, NCCL or torch-mcast gives a collective, such as
// _allgather_base, all_gather_into_tensor_coalesced or AllGather.
func kindOf(name string) Kind {
	plain := strings.ReplaceAll(strings.ToLower(name), "_", "")
	for _, known := range kinds {
		if strings.HasPrefix(plain, strings.ReplaceAll(string(known), "_", "")) {
			return known
		}
	}
	return Other
}

// kernel is how names of NCCL's and RCCL's kernels begin, such as ncclDevKernel_AllGather_RING_LL(...) and, before NCCL
// 2.19, ncclKernel_AllReduce_RING_LL_Sum_float(...). What follows the collective is not always what has run: one kernel
// serves several algorithms and protocols.
var kernel = regexp.MustCompile(`^nccl[A-Za-z]*Kernel_`)

// kernelKind returns the kind of a kernel that communicates; it is false of all other kernels.
func kernelKind(name string) (Kind, bool) {
	prefix := kernel.FindString(name)
	return kindOf(name[len(prefix):]), prefix != ""
}

// typeSizes are the bytes of an element by the names that record_param_comms (Float), shapes (float, c10::Half) and
// torch-mcast (float32) have for its type.
var typeSizes = map[string]int64{
	"float": 4, "float32": 4, "double": 8, "float64": 8, "half": 2, "float16": 2, "bfloat16": 2,
	"byte": 1, "uint8": 1, "unsigned char": 1, "char": 1, "int8": 1, "signed char": 1, "bool": 1,
	"short": 2, "int16": 2, "int": 4, "int32": 4, "long": 8, "long int": 8, "int64": 8,
	"float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1,
	"complexhalf": 4, "complexfloat": 8, "complex64": 8, "complexdouble": 16, "complex128": 16,
	"uint16": 2, "uint32": 4, "uint64": 8,
}

// typeNames maps the other names of a type to the one that is shown.
var typeNames = map[string]string{
	"float": "float32", "double": "float64", "half": "float16", "byte": "uint8", "unsigned char": "uint8", "char": "int8",
	"signed char": "int8", "short": "int16", "int": "int32", "long": "int64", "long int": "int64",
	"complexfloat": "complex64", "complexdouble": "complex128",
}

// elementType returns the name that is shown for a type, and the bytes of an element; 0: it is not known.
func elementType(name string) (shown string, bytes int64) {
	plain := strings.TrimPrefix(strings.ToLower(name), "c10::")
	if shown = typeNames[plain]; shown == "" {
		shown = plain
	}
	return shown, typeSizes[plain]
}
