package figures

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// made is the first row of a figure's NDJSON: what the others come from.
type made struct {
	Figure string `json:"figure"`
	Date   string `json:"date"`
	Commit string `json:"commit"`
	Seed   uint64 `json:"seed"`
	Rows   string `json:"rows_hash"` // of the measurements
	// Small is the hash of the small version at that commit. Where today's small version has another,
	// the figure must be made again.
	Small string `json:"small_hash,omitempty"` // empty: this is a small version
	Stays *stays `json:"stays,omitempty"`
	// Read is the hash of the figure's section of the document when a person last read it beside its claims.
	Read string `json:"read_hash,omitempty"`
}

// stays says why a figure is not made again although its small version has changed. A person writes it.
type stays struct {
	Small string `json:"small_hash"` // of the small version that was looked at
	Why   string `json:"why"`
}

// file is a figure's NDJSON: its first row, what was measured, and the claims.
type file struct {
	made
	rows   []json.RawMessage
	claims []Claim
}

// write writes the file, a row a line.
func (f *file) write(path string) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(f.made)
	for _, r := range f.rows {
		b.Write(append(r, '\n'))
	}
	for _, c := range f.claims {
		err = errors.Join(err, e.Encode(c))
	}
	if err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

// dated is a measurement as a row that says when it was made, and with which commit.
func dated(row json.RawMessage, date, commit string) json.RawMessage {
	return fmt.Appendf(nil, `%s,"date":%q,"commit":%q}`, bytes.TrimSuffix(row, []byte("}")), date, commit)
}

// same is what of a row comes from the simulated run: not when it was made and how long that took.
// Other processors may round the last digits of a number otherwise.
func same(row []byte) (string, error) {
	d := json.NewDecoder(bytes.NewReader(row))
	d.UseNumber() // counters have 64 bits
	var all map[string]any
	if err := d.Decode(&all); err != nil {
		return "", err
	}
	for _, key := range []string{"wall_s", "date", "commit"} {
		delete(all, key)
	}
	text, err := json.Marshal(rounded(all)) // by names in order
	return string(text), err
}

// rounded has 9 digits of every number that is no integer.
func rounded(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key := range v {
			v[key] = rounded(v[key])
		}
	case []any:
		for i := range v {
			v[i] = rounded(v[i])
		}
	case json.Number:
		if f, err := v.Float64(); err == nil && strings.ContainsAny(v.String(), ".eE") {
			return json.Number(strconv.FormatFloat(f, 'g', 9, 64))
		}
	}
	return v
}

// hash returns a hash of everything that rows have from their runs.
func hash(rows []json.RawMessage) (string, error) {
	h := sha256.New()
	for _, r := range rows {
		text, err := same(r)
		if err != nil {
			return "", err
		}
		h.Write([]byte(text + "\n"))
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}

// row adds a line to the figure's NDJSON that takes no time to compute. Where a figure is drawn from
// earlier rows, the next of them must be the same.
func (s *sheet) row(v any) error {
	row, err := json.Marshal(v)
	if err != nil || s.earlier == nil {
		s.rows = append(s.rows, row)
		return err
	}
	before, err := s.next()
	if err != nil {
		return err
	}
	return equal(before, row)
}

// measured runs what takes long and adds a line with its outcome. Where a figure is drawn from
// earlier rows, the outcome is the next of them.
func measured[T any](s *sheet, run func() (T, error)) (T, error) {
	if s.earlier == nil {
		v, err := run()
		if err == nil {
			err = s.row(v)
		}
		return v, err
	}
	var v T
	row, err := s.next()
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(row, &v); err != nil {
		return v, err
	}
	again, err := json.Marshal(v)
	if err != nil {
		return v, err
	}
	return v, equal(row, again) // no field is lost, none missing
}

// next takes an earlier row.
func (s *sheet) next() (json.RawMessage, error) {
	if len(s.rows) == len(s.earlier) {
		return nil, fmt.Errorf("has %d rows, and wants more", len(s.earlier))
	}
	row := s.earlier[len(s.rows)]
	s.rows = append(s.rows, row)
	return row, nil
}

// equal returns an error if a row is not the same as the one that it should be.
func equal(is, should json.RawMessage) error {
	a, err := same(is)
	if err != nil {
		return err
	}
	b, err := same(should)
	if err != nil {
		return err
	}
	if a != b {
		return fmt.Errorf("the committed row is %s, the code has %s", a, b)
	}
	return nil
}
