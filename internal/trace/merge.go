package trace

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
)

// other is a trace of any program.
type other struct {
	path   string
	base   int64
	host   string
	events []map[string]json.RawMessage
}

// Merge writes traces of processes of one host as one: ours, torch.profiler's and others in that form, with moments in
// microseconds since baseTimeNanoseconds (since 1970, if they have none). Files may be compressed (.gz).
func Merge(w io.Writer, paths []string) error {
	whole := struct {
		SchemaVersion int                          `json:"schemaVersion"`
		Host          string                       `json:"host_name,omitempty"`
		Unit          string                       `json:"displayTimeUnit"`
		Base          int64                        `json:"baseTimeNanoseconds"`
		Events        []map[string]json.RawMessage `json:"traceEvents"`
	}{SchemaVersion: 1, Unit: "ms", Events: []map[string]json.RawMessage{}}
	var all []*other
	hostOf := ""
	for _, path := range paths {
		o, err := readOther(path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if o.host != "" && whole.Host != "" && o.host != whole.Host {
			return fmt.Errorf("%s is of host %s, %s of host %s: clocks and process numbers of one host go together, of two "+
				"they do not",
				hostOf, whole.Host, path, o.host)
		}
		if o.host != "" {
			whole.Host, hostOf = o.host, path
		}
		whole.Base = max(whole.Base, o.base)
		all = append(all, o)
	}
	for _, o := range all {
		if err := o.shift(whole.Base); err != nil {
			return fmt.Errorf("%s: %w", o.path, err)
		}
		whole.Events = append(whole.Events, o.events...)
	}
	return json.NewEncoder(w).Encode(whole)
}

// Open opens a trace, in .gz or as it is.
func Open(path string) (io.ReadCloser, error) {
	f, err := os.Open(path)
	if err != nil || !strings.HasSuffix(path, ".gz") {
		return f, err
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		_ = f.Close()
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return struct {
		io.Reader
		io.Closer
	}{z, f}, nil
}

func readOther(path string) (*other, error) {
	r, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	var d struct {
		Host   string                       `json:"host_name"`
		Base   int64                        `json:"baseTimeNanoseconds"`
		Events []map[string]json.RawMessage `json:"traceEvents"`
	}
	if err := json.NewDecoder(r).Decode(&d); err != nil {
		return nil, fmt.Errorf("it is not a trace in JSON: %w", err)
	}
	if d.Events == nil {
		return nil, errors.New("it is not a trace in JSON: it has no traceEvents")
	}
	return &other{path: path, base: d.Base, host: d.Host, events: d.Events}, nil
}

// shift has moments count from another base.
func (o *other) shift(base int64) error {
	if base == o.base {
		return nil
	}
	for _, e := range o.events {
		if e["ts"] == nil {
			continue
		}
		var at float64
		if err := json.Unmarshal(e["ts"], &at); err != nil {
			return fmt.Errorf("ts %s is not a number", e["ts"])
		}
		moved, err := micros(int64(math.Round(at*1000)) + o.base - base).MarshalJSON()
		if err != nil {
			return err
		}
		e["ts"] = moved
	}
	return nil
}
