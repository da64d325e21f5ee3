package advise

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/torch-mcast/torch-mcast/internal/trace"
)

// maxValue bounds the bytes of a trace in memory at once: an event, or another value of the outermost object.
const maxValue = 64 << 20

// Read reads a trace that torch.profiler has exported, in .gz or as it is, event after event: it keeps the merged spans
// of computation, and the collectives.
func Read(path string) (*Trace, error) {
	r, err := trace.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	t, err := decode(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	t.Path = path
	return t, nil
}

// decode reads a trace from a stream.
func decode(r io.Reader) (*Trace, error) {
	limited := &limit{from: r, left: maxValue}
	d := json.NewDecoder(limited)
	b := newBuilder()
	found := false
	err := object(d, func(key string) error {
		limited.left = maxValue
		switch key {
		case "traceEvents":
			found = true
			return array(d, func() error {
				limited.left = maxValue
				var e event
				if err := d.Decode(&e); err != nil {
					return err
				}
				return b.add(&e)
			})
		case "distributedInfo":
			return d.Decode(&b.job)
		case "host_name":
			return d.Decode(&b.trace.Host)
		case "deviceProperties":
			var devices []json.RawMessage
			err := d.Decode(&devices)
			b.trace.Devices = len(devices)
			return err
		}
		var rest json.RawMessage
		return d.Decode(&rest)
	})
	if err != nil {
		return nil, fmt.Errorf("it is not a trace of torch.profiler in JSON, at byte %d: %w", d.InputOffset(), err)
	}
	if !found {
		return nil, errors.New("it is not a trace of torch.profiler: it has no traceEvents")
	}
	return b.done()
}

// object calls a function at the value of each key.
func object(d *json.Decoder, value func(key string) error) error {
	if err := expect(d, '{'); err != nil {
		return err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		name, _ := key.(string)
		if err := value(name); err != nil {
			return err
		}
	}
	return expect(d, '}')
}

// array calls a function at each value.
func array(d *json.Decoder, value func() error) error {
	if err := expect(d, '['); err != nil {
		return err
	}
	for d.More() {
		if err := value(); err != nil {
			return err
		}
	}
	return expect(d, ']')
}

func expect(d *json.Decoder, want json.Delim) error {
	got, err := d.Token()
	switch {
	case errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	case err != nil:
		return err
	case got != want:
		return fmt.Errorf("there is %.40q where %q is wanted", fmt.Sprint(got), want.String())
	}
	return nil
}

// limit ends a stream with a value that is too long.
type limit struct {
	from io.Reader
	left int
}

// Read reads at most the bytes that are left of the limit.
func (l *limit) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, fmt.Errorf("one value has more than %d MiB", maxValue>>20)
	}
	n, err := l.from.Read(p[:min(len(p), l.left)])
	l.left -= n
	return n, err
}
