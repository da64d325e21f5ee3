package experiment

import (
	"fmt"
	"os"
	"strings"

	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
)

// congestionFile is how TCP of the caller's network namespace avoids congestion.
const congestionFile = "/proc/sys/net/ipv4/tcp_congestion_control"

// machineTCP returns the congestion control of this machine, which its new namespaces have, too.
func machineTCP() (string, error) {
	text, err := os.ReadFile(congestionFile)
	return strings.TrimSpace(string(text)), err
}

// tcpOf is the congestion control of a work's hosts.
func (l *lab) tcpOf(w work) string {
	switch {
	case w.tcp != "":
		return w.tcp
	case l.TCP != "":
		return l.TCP
	}
	return l.machineTCP
}

// setTCP sets the congestion control in all hosts, but not of the machine, which determines the
// allowed ones.
func (l *lab) setTCP(tb *testbed.Testbed, name string) error {
	if l.hostsTCP == name {
		return nil
	}
	for _, h := range tb.Hosts() {
		// of the thread's namespace
		err := tb.In(h.Namespace, func() error { return os.WriteFile(congestionFile, []byte(name), 0) })
		if err != nil {
			allowed, _ := os.ReadFile("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
			return fmt.Errorf("TCP by %q: %w: this machine allows %s", name, err, strings.TrimSpace(string(allowed)))
		}
	}
	l.hostsTCP = name
	return nil
}
