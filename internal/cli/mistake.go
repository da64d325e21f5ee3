package cli

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// negative is what a number below 0 begins with.
var negative = regexp.MustCompile(`^-[0-9.]`)

// withNegatives joins a flag and a number below 0 after it, as in --bytes -1: kong takes the number for another flag,
// and does not say which numbers are allowed. Arguments behind -- are another program's.
func withNegatives(args []string) []string {
	var joined []string
	for i, arg := range args {
		if arg == "--" {
			return append(joined, args[i:]...)
		}
		if n := len(joined); n > 0 && negative.MatchString(arg) && strings.HasPrefix(joined[n-1], "--") &&
			!strings.Contains(joined[n-1], "=") {
			joined[n-1] += "=" + arg
			continue
		}
		joined = append(joined, arg)
	}
	return joined
}

// withValue has an error about the value of a flag that can stand alone, as in --switch host:port, say how it is
// written.
func withValue(err error, args []string) error {
	var wrong *kong.ParseError
	stray, is := strings.CutPrefix(err.Error(), "unexpected argument ")
	at := slices.Index(args, stray)
	if !is || at < 1 || !strings.HasPrefix(args[at-1], "--") || args[at-1] == "--" || !errors.As(err, &wrong) {
		return err
	}
	return &commandError{fmt.Sprintf("unexpected argument %s: a value of %s is written %s=%s", stray, args[at-1],
		args[at-1], stray), wrong}
}

// withCommands has an error for want of a command name all that there are: kong names the first five, or none where
// the word is unknown.
func withCommands(err error) error {
	var wrong *kong.ParseError
	if !errors.As(err, &wrong) {
		return err
	}
	var at *kong.Node
	for _, p := range wrong.Context.Path {
		if node := p.Node(); node != nil {
			at = node
		}
	}
	var names []string
	for _, child := range at.Children {
		if !child.Hidden {
			names = append(names, child.Name)
		}
	}
	want := "want one of " + strings.Join(names, ", ")
	switch text := err.Error(); {
	case negative.MatchString(strings.TrimPrefix(text, "unknown flag ")):
		number, _, _ := strings.Cut(strings.TrimPrefix(text, "unknown flag "), ",")
		return &commandError{fmt.Sprintf("%s is taken for a flag: no argument may be below 0", number), wrong}
	case len(names) == 0:
		return err
	case strings.HasPrefix(text, "expected one of "):
		return &commandError{"no command: " + want, wrong}
	case strings.HasPrefix(text, "unexpected argument "):
		return &commandError{text + "; " + want, wrong}
	}
	return err
}

// commandError is kong's, in other words.
type commandError struct {
	text string
	kong *kong.ParseError
}

func (e *commandError) Error() string { return e.text }

func (e *commandError) Unwrap() error { return e.kong }
