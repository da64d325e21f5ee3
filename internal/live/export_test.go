package live

import "time"

// Own is own.
var Own = own

// Patience is patience.
var Patience = &patience

// ReadWithin is Read of processes that have so long to answer.
func ReadWithin[T any](within time.Duration, directories []string) ([]Process[T], []error) {
	return readAll[T](within, 0, directories)
}
