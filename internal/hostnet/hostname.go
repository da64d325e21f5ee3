package hostnet

import (
	"os"
	"strings"
)

// mostName is how much of a host's name a blob takes, in bytes, as Linux does (HOST_NAME_MAX).
const mostName = 64

// hostName is this host's, empty where the kernel does not say.
func hostName() string {
	name, _ := os.Hostname()
	return PlainName(name)
}

// PlainName bounds what a name takes in JSON, which spells other characters in up to six bytes: the kernel
// lets a host have any.
func PlainName(name string) string {
	plain := []byte(name[:min(len(name), mostName)])
	for i, c := range plain {
		if c <= ' ' || c > '~' || strings.IndexByte(`"\<>&`, c) >= 0 {
			plain[i] = '?'
		}
	}
	return string(plain)
}
