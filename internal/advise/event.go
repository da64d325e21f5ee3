package advise

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// event is one of a trace in Chrome's form, as Kineto writes it.
type event struct {
	Phase    string          `json:"ph"`
	Category string          `json:"cat"`
	Name     string          `json:"name"`
	Thread   json.RawMessage `json:"tid"`
	Start    json.Number     `json:"ts"`  // microseconds
	Length   json.Number     `json:"dur"` // microseconds
	Args     json.RawMessage `json:"args"`
}

// arguments are those of an event that say what a collective moves: of record_param_comms and NCCL's kernels
// (torch/csrc/profiler/util.h) and of torch-mcast's events, and the shapes of any operator's tensors, which are
// there if the profiler has record_shapes=True.
type arguments struct {
	External   json.Number     `json:"External id"`
	Collective string          `json:"Collective name"`
	In         json.Number     `json:"In msg nelems"`
	Out        json.Number     `json:"Out msg nelems"`
	Type       string          `json:"dtype"`
	Size       json.Number     `json:"Group size"`
	Group      string          `json:"Process Group Name"`
	Ranks      string          `json:"Process Group Ranks"`
	Number     json.Number     `json:"Seq"`
	Dims       []shape         `json:"Input Dims"`
	Types      json.RawMessage `json:"Input type"`
}

// shape is the number of elements of an argument: of a tensor, or of all in a list of tensors. It is 0 for a scalar and
// for other arguments.
type shape int64

// UnmarshalJSON reads [2, 3], [[2, 3], [4]], or the form of another argument, as 0.
func (s *shape) UnmarshalJSON(text []byte) error {
	*s = 0
	if !bytes.HasPrefix(text, []byte("[")) {
		return nil
	}
	var dims []int64
	if json.Unmarshal(text, &dims) == nil {
		if len(dims) > 0 {
			*s = shape(product(dims))
		}
		return nil
	}
	var list []shape // of tensors
	if json.Unmarshal(text, &list) == nil {
		for _, t := range list {
			*s = min(*s+t, maxElements)
		}
	}
	return nil
}

// maxElements bounds what a trace may say of a tensor, so that no sum overflows.
const maxElements = 1 << 48

func product(dims []int64) int64 {
	n := int64(1)
	for _, d := range dims {
		if d < 0 || d > 0 && n > maxElements/d {
			return maxElements
		}
		n *= d
	}
	return n
}

// message is what a collective moves, as far as it is known.
type message struct {
	in, out  int64  // elements that this rank gives and gets
	dtype    string // as shown
	element  int64  // bytes
	size     int    // ranks of the group; 0: not known
	group    string // what tells it from other groups of its size
	ranks    []int  // of the group, ascending; none: not known
	number   int64  // of the collective in its group; 0: not known
	external int64  // what ties a kernel to the event that it was launched in; 0: nothing
}

// message reads what arguments say of a collective.
func (a *arguments) message() message {
	m := message{
		in: count(a.In, maxElements), out: count(a.Out, maxElements), size: int(count(a.Size, maxTraceRanks)), group: a.Group,
		number: count(a.Number, math.MaxInt64), external: count(a.External, math.MaxInt64),
	}
	m.dtype, m.element = elementType(a.Type)
	m.ranks = ranksIn(a.Ranks)
	if len(m.ranks) != m.size { // torch leaves out the middle of long lists
		m.ranks = nil
	}
	return m
}

// tensors has a message say what the shapes of an operator's tensors do.
func (a *arguments) tensors(m *message, in, out int) {
	at := func(i int) int64 {
		if i < 0 || i >= len(a.Dims) {
			return 0
		}
		return int64(a.Dims[i])
	}
	m.in, m.out = at(in), at(out)
	var types []string
	if json.Unmarshal(a.Types, &types) == nil && in >= 0 && in < len(types) && types[in] != "TensorList" {
		m.dtype, m.element = elementType(types[in])
	}
}

// count reads a number from 0 to most; anything else is 0.
func count(n json.Number, most int64) int64 {
	v, err := strconv.ParseInt(string(n), 10, 64)
	if err != nil || v < 0 || v > most {
		return 0
	}
	return v
}

// maxTraceRanks bounds what a trace may say of a group.
const maxTraceRanks = 1 << 24

// ranksIn reads "[0, 1]".
func ranksIn(text string) (ranks []int) {
	var all []int
	if json.Unmarshal([]byte(text), &all) != nil {
		return nil
	}
	return all
}

// when returns the stretch of an event, in nanoseconds.
func (e *event) when() (span, error) {
	from, err := nanoseconds(string(e.Start))
	if err != nil {
		return span{}, fmt.Errorf("event %.80q: ts %w", e.Name, err)
	}
	long, err := nanoseconds(string(e.Length))
	if err == nil && long < 0 {
		err = fmt.Errorf("%s is negative", e.Length)
	}
	if err != nil {
		return span{}, fmt.Errorf("event %.80q: dur %w", e.Name, err)
	}
	return span{from, from + long}, nil
}

// nanoseconds reads microseconds with a fraction, such as 4458676524595.135: more digits than a float64 has.
func nanoseconds(text string) (int64, error) {
	if !strings.ContainsAny(text, "0123456789") {
		return 0, fmt.Errorf("%.40q is not a number of microseconds", text)
	}
	whole, fraction, _ := strings.Cut(text, ".")
	if len(fraction) > 3 {
		fraction = fraction[:3]
	}
	n, err := strconv.ParseInt(whole+fraction+"000"[len(fraction):], 10, 64)
	if err != nil { // 1e6, say
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(f) {
			return 0, fmt.Errorf("%.40q is not a number of microseconds", text)
		}
		n = int64(max(min(f*1000, 2*farthest), -2*farthest))
	}
	if n > farthest || n < -farthest {
		return 0, fmt.Errorf("%.40s is too large: want less than a hundred years of microseconds", text)
	}
	return n, nil
}

// farthest bounds moments: sums of two do not overflow.
const farthest = 1 << 61
