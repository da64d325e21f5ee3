package doctor

import (
	"fmt"
	"strings"
)

// ByteCount writes a size for people.
func ByteCount(n int) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 10<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}

// several writes a number of things.
func several(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// listed makes a list for people, of a few names and how many more.
func listed(names []string) string {
	const most = 8
	if more := len(names) - most; more > 0 {
		return strings.Join(names[:most], ", ") + " and " + several(more, "other")
	}
	if n := len(names); n > 1 {
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	}
	return strings.Join(names, "")
}

// orWord returns the first of some names, or another word if there is none.
func orWord(names []string, otherwise string) string {
	if len(names) == 0 {
		return otherwise
	}
	return names[0]
}
