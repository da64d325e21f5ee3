package search

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/big"
	"slices"
	"strconv"
)

// A scenario is shrunk as a tree of JSON values: objects, lists, numbers, strings and true. Zero
// values are left out, so that the smallest scenario is the one with the least in it.

// encode writes a value as JSON and leaves out zero values.
func encode(v any) ([]byte, error) {
	tree, err := treeOf(v)
	if err != nil {
		return nil, err
	}
	return json.Marshal(tree)
}

// decode reads a value that encode has written. It returns an error if the text
// names a field that the value has not.
func decode[S any](text []byte) (s S, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err = d.Decode(&s); err != nil {
		return s, err
	}
	if _, err = d.Token(); err != io.EOF {
		return s, fmt.Errorf("more than one JSON value")
	}
	return s, nil
}

// treeOf returns the tree of a value without zero values.
func treeOf(v any) (any, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // a seed has 64 bits
	var tree any
	if err := d.Decode(&tree); err != nil {
		return nil, err
	}
	prune(tree)
	return tree, nil
}

// prune removes zero values from objects, at any depth. Elements of lists stay.
func prune(tree any) {
	switch v := tree.(type) {
	case map[string]any:
		for name, x := range v {
			if prune(x); isZero(x) {
				delete(v, name)
			}
		}
	case []any:
		for _, x := range v {
			prune(x)
		}
	}
}

func isZero(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case bool:
		return !v
	case string:
		return v == ""
	case json.Number:
		f, err := v.Float64()
		return err == nil && f == 0
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

// edit is a change of a tree in one place: it returns the new value of this place.
type edit func(v any) any

// edits calls visit with each edit that the function of returns for a value in the tree, from the
// outside in and by name, until visit returns false. apply gives the tree with this edit made.
func edits(tree any, of func(v any, removable bool) []edit, visit func(apply func() any) bool) bool {
	var walk func(v any, removable bool, put func(any) any) bool
	walk = func(v any, removable bool, put func(any) any) bool {
		for _, e := range of(v, removable) {
			if !visit(func() any { return put(e(v)) }) {
				return false
			}
		}
		switch v := v.(type) {
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(v)) {
				if !walk(v[name], true, func(x any) any {
					c := maps.Clone(v)
					if c[name] = x; x == nil {
						delete(c, name)
					}
					return put(c)
				}) {
					return false
				}
			}
		case []any:
			for i := range v {
				if !walk(v[i], false, func(x any) any {
					c := slices.Clone(v)
					c[i] = x
					return put(c)
				}) {
					return false
				}
			}
		}
		return true
	}
	return walk(tree, false, func(v any) any { return v })
}

// cut takes elements out of a list: halves first, single ones last.
func cut(v any, _ bool) (all []edit) {
	list, _ := v.([]any)
	for size := len(list); size > 0; size /= 2 {
		for at := 0; at+size <= len(list); at += size {
			all = append(all, func(any) any { return slices.Concat(list[:at], list[at+size:]) })
		}
	}
	return all
}

// drop makes a field zero.
func drop(_ any, removable bool) []edit {
	if !removable {
		return nil
	}
	return []edit{func(any) any { return nil }}
}

// lower makes a whole number smaller: by a half, a quarter, and so on to a thousandth.
func lower(v any, _ bool) (all []edit) {
	n, ok := integer(v)
	for part := int64(2); ok && part <= 1024 && part <= 2*n; part *= 2 {
		all = append(all, number(n-max(n/part, 1)))
	}
	return all
}

// round keeps one digit of a number.
func round(v any, _ bool) []edit {
	text, ok := v.(json.Number)
	if !ok {
		return nil
	}
	if n, ok := integer(v); ok {
		unit := int64(1)
		for n/unit >= 10 {
			unit *= 10
		}
		if n%unit == 0 {
			return nil
		}
		return []edit{number(n / unit * unit)}
	}
	f, err := text.Float64()
	if short := json.Number(strconv.FormatFloat(f, 'g', 1, 64)); err == nil && len(short) < len(text) {
		return []edit{func(any) any { return short }}
	}
	return nil
}

// integer returns the value of a whole number that is not negative.
func integer(v any) (int64, bool) {
	text, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	n, ok := new(big.Int).SetString(text.String(), 10)
	if !ok || !n.IsInt64() || n.Sign() < 0 {
		return 0, false
	}
	return n.Int64(), true
}

func number(n int64) edit {
	return func(any) any { return json.Number(strconv.FormatInt(n, 10)) }
}
