package config

import "fmt"

// ExitMistake is the exit status of a command that was given something wrong: EX_USAGE of sysexits.h. The shell's own 2
// is a fault of the host to `mcast doctor`.
const ExitMistake = 64

// Mistake is an error of what was given: a variable, a flag or an argument.
type Mistake struct{ Err error }

// Mistakef is fmt.Errorf for a Mistake.
func Mistakef(format string, args ...any) error { return Mistake{fmt.Errorf(format, args...)} }

func (m Mistake) Error() string { return m.Err.Error() }

// Unwrap returns the error that the mistake is about.
func (m Mistake) Unwrap() error { return m.Err }

// ExitCode is taken by the command for its own.
func (Mistake) ExitCode() int { return ExitMistake }
