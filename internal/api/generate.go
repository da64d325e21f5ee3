// Package api holds what the API says in every language, each in one table: the counters of a group
// (counters.go), the kinds of errors (errors.go) and the element types (types.go). Go, C and Python
// code and the documents that speak of them are written from it by "go generate ./internal/api".
package api

import (
	"embed"
	"errors"
	"fmt"
	"go/format"
	"regexp"
	"strings"
	"text/template"
)

//go:generate go test -run ^TestWhatIsWrittenIsCurrent$ -update

//go:embed templates
var templates embed.FS

// output is a file, or a part of one, that is written from the tables.
type output struct {
	path     string // from the root of the repository
	template string
	part     string // what stands between the lines that have "BEGIN part" and "END part"; "": all
}

var outputs = []output{
	{"internal/monitor/stats.go", "monitor.go.tmpl", ""},
	{"pkg/collnet/stats.go", "collnet.go.tmpl", ""},
	{"ncclnet/mcast.h", "stats.h.tmpl", "counters"},
	{"ncclnet/mcast.h", "errors.h.tmpl", "errors"},
	{"ncclnet/mcast.h", "types.h.tmpl", "types"},
	{"ncclnet/stats.go", "ncclnet_stats.go.tmpl", ""},
	{"ncclnet/errors.go", "ncclnet_errors.go.tmpl", ""},
	{"python/torch_mcast/counters.py", "counters.py.tmpl", ""},
	{"python/torch_mcast/errors.py", "errors.py.tmpl", "errors"},
	{"python/torch_mcast/_lib.py", "types_lib.py.tmpl", "types"},
	{"python/torch_mcast/reduction.py", "types_torch.py.tmpl", "types"},
	{"pkg/collnet/types.go", "types.go.tmpl", ""},
	{"docs/reference/counters.md", "counters.md.tmpl", ""},
	{"docs/reference/messages.md", "errors.md.tmpl", "errors"},
}

// written returns the content that the file of an output should have; is is its content now.
func (o *output) written(is string) (string, error) {
	text, err := render(o.template)
	if err != nil {
		return "", err
	}
	if o.part != "" {
		text, err = replace(is, o.part, text)
	}
	if err == nil && strings.HasSuffix(o.path, ".go") {
		var b []byte
		b, err = format.Source([]byte(text))
		text = string(b)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", o.path, err)
	}
	return text, nil
}

// render fills a template with the tables.
func render(name string) (string, error) {
	t, err := template.New(name).Funcs(template.FuncMap{
		"comment": comment, "counters": Counters, "errors": Errors, "types": Types, "groups": Groups, "in": in, "base": base,
		"forGo": forGo, "nccl": nccl,
	}).ParseFS(templates, "templates/*")
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = t.Execute(&b, nil)
	return b.String(), err
}

// replace puts text between the two lines of a file that mark a part.
func replace(file, part, text string) (string, error) {
	_, rest, begun := strings.Cut(file, "BEGIN "+part)
	end := strings.Index(rest, "END "+part)
	if !begun || end < 0 {
		return "", errors.New("there must be a line with BEGIN " + part + ", and after it one with END " + part)
	}
	from := len(file) - len(rest) + strings.Index(rest, "\n") + 1
	to := strings.LastIndex(file[:len(file)-len(rest)+end], "\n") + 1
	return file[:from] + text + file[to:], nil
}

// in returns the counters of a group.
func in(g Group) (of []Counter) {
	for _, c := range counters {
		if c.Group == g {
			of = append(of, c)
		}
	}
	return of
}

// base returns what Python's class of an error derives from.
func base(e Error) string {
	if e.Builtin == "" {
		return "McastError"
	}
	return "McastError, " + e.Builtin
}

// forGo has a sentence name counters as Go does.
func forGo(text string) string {
	text = strings.ReplaceAll(text, "info()", "Info")
	return names.ReplaceAllStringFunc(text, func(name string) string {
		for _, c := range counters {
			if c.Name == name {
				return c.GoName()
			}
		}
		return name
	})
}

var names = regexp.MustCompile(`[a-z]+(_[a-z]+)*`)

// nccl returns NCCL's own name of a result: ncclSystemError for SYSTEM_ERROR.
func nccl(result string) string { return "nccl" + camel(strings.ToLower(result)) }

// comment wraps sentences at 100 columns; the first line begins with first, all others with next.
func comment(first, next string, sentences ...string) string {
	const width = 100
	var b strings.Builder
	line := first
	for _, word := range strings.Fields(strings.Join(sentences, " ")) {
		if columns(line)+1+len(word) > width && strings.TrimSpace(line) != strings.TrimSpace(next) {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
			line = next
		}
		line += word + " "
	}
	b.WriteString(strings.TrimRight(line, " "))
	return b.String()
}

// columns is how wide a line is, with tabs of four.
func columns(line string) int { return len(line) + 3*strings.Count(line, "\t") }
