package collnet

import (
	"log/slog"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/group"
)

// MaxRanks is the largest number of ranks in a group: 32768.
const MaxRanks = group.MaxRanks

// Fabric is what carries the bytes.
type Fabric string

// The fabrics. The empty text is Auto, too.
const (
	Auto         Fabric = "auto"  // SharedMemory if all ranks are on one host, else UDP
	UDP          Fabric = "udp"   // multicast, and TCP for what multicast does not carry
	Verbs        Fabric = "verbs" // multicast through RDMA devices, else as UDP
	SharedMemory Fabric = "shm"   // all ranks are on one host and in one network namespace
)

// Options are the choices of a program. The zero value of each field is its default, so Options{} works,
// and does the same in every environment. Give every rank the same Fabric, MulticastGroup,
// Port, Timeout and Encrypt (Join compares them), as many Switches, and the same Secret and Job.
//
// FromEnv fills them from the MCAST_* variables named here. Some 25 more, most of them for tuning and
// tests, have no field: they count in Options that come from FromEnv, else their defaults do.
// docs/reference/settings.md lists all.
type Options struct {
	// Fabric is what carries the bytes (MCAST_FABRIC).
	Fabric Fabric
	// Interface names the network interface, such as eth0 (MCAST_IFACE); empty: the interface of the route to
	// the other ranks.
	Interface string
	// MulticastGroup is the first group (MCAST_GROUP), from 224.0.1.0 to 239.255.255.255 or of ff00::/8
	// with a scope wider than a link; zero: drawn for the job from 239.192.0.0/14 or ff15::/16.
	MulticastGroup netip.Addr
	// Port is the UDP port of the group, 1024 or more (MCAST_PORT); 0: drawn for the job.
	Port uint16
	// Switches are host:port of nodes that add (`mcast switch`), in the order in which to try them
	// (MCAST_SWITCH); none: each rank sums its own shard.
	Switches []string
	// Secret is what ranks prove to each other, and to the switch, 22 to 256 characters (MCAST_SECRET, or
	// the file of MCAST_SECRET_FILE); empty: everybody on the network is taken for a rank, and the switch
	// must admit everybody.
	Secret string
	// Encrypt has ranks encrypt their multicast, and the data to the switch and back (MCAST_ENCRYPT). It takes a
	// Secret. Memory that ranks of a host share is not encrypted.
	Encrypt bool
	// Timeout is how long a rank may be stopped, starved or cut off; after 1.25 times as long it is lost. From 100ms
	// to 1h (MCAST_TIMEOUT); 0: 30s. A path that acknowledges no data is broken after 1.5 times as long.
	Timeout time.Duration
	// JoinTimeout is how long the ranks wait for each other when they join, from 100ms to 24h
	// (MCAST_JOIN_TIMEOUT); 0: 5m. A ctx may end it earlier.
	JoinTimeout time.Duration
	// Background has the group send only while no other group of this process has an operation
	// that moves (MCAST_CLASS=background): for checkpoints.
	Background bool
	// Job keeps jobs apart that meet at one address, one after the other: Join turns away a rank
	// with another number.
	Job uint64
	// Logger takes the messages of the group, from warnings about causes of slowness to the choices at join
	// (info); nil: standard error, warnings and errors (or from MCAST_LOG on, after FromEnv).
	Logger *slog.Logger

	environment *config.Settings // of FromEnv, for what has no field; nil: defaults
}

// FromEnv returns the options that the MCAST_* variables ask for. The error, an *ArgumentError, names
// every bad variable, its value and the allowed ones; a variable that does not exist is a warning of
// log/slog, unless MCAST_LOG is error or off.
func FromEnv() (Options, error) {
	s, err := config.FromEnviron()
	var logging config.Settings // those of the logger, however bad others are
	if level, _ := os.LookupEnv("MCAST_LOG"); logging.Set("MCAST_LOG", level) == nil && logging.Log <= slog.LevelWarn {
		for _, warning := range config.Unknown(os.Environ()) {
			slog.Warn(warning, "lib", "mcast")
		}
	}
	if err != nil {
		return Options{}, &ArgumentError{Text: err.Error()}
	}
	return Options{
		Fabric: Fabric(s.Fabric), Interface: s.Interface, MulticastGroup: s.Group, Port: s.Port,
		Switches: s.Switches(), Secret: s.Secret, Encrypt: s.Encrypt, Timeout: s.Timeout, JoinTimeout: s.JoinTimeout,
		Background: s.Class == background, environment: &s,
	}, nil
}

const background = "background" // of MCAST_CLASS

// settings returns what the group is opened with.
func (o *Options) settings() (config.Settings, error) {
	s := config.Default()
	if o.environment != nil {
		s = *o.environment
	}
	class := ""
	if o.Background {
		class = background
	}
	encrypt := ""
	if o.Encrypt {
		encrypt = "1"
	}
	for _, f := range []struct{ field, variable, text string }{
		{"Fabric", "MCAST_FABRIC", string(o.Fabric)},
		{"Interface", "MCAST_IFACE", o.Interface},
		{"MulticastGroup", "MCAST_GROUP", unlessZero(o.MulticastGroup, o.MulticastGroup.String())},
		{"Port", "MCAST_PORT", unlessZero(o.Port, strconv.Itoa(int(o.Port)))},
		{"Switches", "MCAST_SWITCH", strings.Join(o.Switches, ",")},
		{"Secret", "MCAST_SECRET", o.Secret},
		{"Encrypt", "MCAST_ENCRYPT", encrypt},
		{"Timeout", "MCAST_TIMEOUT", unlessZero(o.Timeout, o.Timeout.String())},
		{"JoinTimeout", "MCAST_JOIN_TIMEOUT", unlessZero(o.JoinTimeout, o.JoinTimeout.String())},
		{"Background", "MCAST_CLASS", class},
	} {
		if err := s.Set(f.variable, f.text); err != nil {
			return s, argument("Options.%s: %v", f.field, err)
		}
	}
	if err := s.Check(); err != nil {
		return s, argument("Options: %v", err)
	}
	return s, nil
}

// unlessZero returns text, or for a zero value the empty text, which stands for the default.
func unlessZero[T comparable](v T, text string) string {
	var zero T
	if v == zero {
		return ""
	}
	return text
}
