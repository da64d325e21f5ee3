// Package config reads the MCAST_* variables. One table (Variables) holds the
// name, type, default, range and help of each of them; Load, the error
// messages and docs/reference/settings.md all come from it.
package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/agnivade/levenshtein"

	"github.com/torch-mcast/torch-mcast/internal/coredump"
)

//go:generate go test -run ^TestReferenceIsCurrent$ -update

// Settings are the values of the variables, checked. Sizes are in bytes. A zero Group, Port, Chunk,
// Window or ReceiveBuffer and an empty Interface or Rendezvous mean that the library chooses, as
// the table says.
type Settings struct {
	Fabric        string // "auto", "udp", "shm" or "verbs"
	Interface     string
	Multicast     string // "auto", "require" or "off"
	Nodes         string // "auto" or "off"
	Outputs       int    // bytes
	Topology      string // names of ever smaller parts of the network with this host, separated by slashes
	Family        string // of IP: "auto", "4" or "6"; see Version
	Group         netip.Addr
	Port          uint16
	TTL           int
	Timeout       time.Duration
	JoinTimeout   time.Duration
	Class         string // "foreground" or "background"
	DSCP          int    // of packets in the foreground; see Mark
	Loss          float64
	LossSeed      uint64
	Chains        int
	Subgroups     int
	Chunk         int
	Window        int
	ReceiveBuffer int
	Offload       string // "auto", "gso", "batch" or "single"
	Eager         int
	Cutoff        time.Duration
	ShmChunk      int
	ShmSlots      int
	Switch        string // addresses, host:port, separated by commas; see Switches
	SwitchMode    string // "reproducible" or "fast"
	SwitchTimeout time.Duration
	Secret        string
	SecretFile    string
	Encrypt       bool
	Checksum      string // "off" or "crc32c"

	NetFabric          string // "auto", "shm", "tcp" or "verbs"
	NetLanes           int
	NetZerocopy        string // "auto", "on" or "off"
	NetTLS             string // "auto", "require" or "off"
	Driver             string // "auto", "agent" or "caller"
	GPUMemory          string // "host", "coherent" or "dmabuf"
	CollNetDevices     int    // 0: the library chooses
	TunerAllgather     int    // 0: never, -1: as the tuner's table says; as below
	TunerReduceScatter int

	Metrics    string // "auto", "off" or a directory
	Trace      string // as Metrics
	SIMD       string // "auto", "avx512", "avx2" or "generic"
	Log        slog.Level
	Rendezvous string
}

// Mark returns the class of service (DSCP) of sent packets; in the background CS1, for traffic that gives way.
func (s *Settings) Mark() int {
	if s.Class == "background" {
		return 8
	}
	return s.DSCP
}

// Interfaces returns the names in Interface, the first one that ranks reach each other by; none: the
// library chooses.
func (s *Settings) Interfaces() []string {
	if s.Interface == "" {
		return nil
	}
	return strings.Split(s.Interface, ",")
}

// First returns the first of Interfaces, or "".
func (s *Settings) First() string {
	name, _, _ := strings.Cut(s.Interface, ",")
	return name
}

// Version is the version of IP that addresses of ranks must have: 4 or 6; 0: either.
func (s *Settings) Version() int {
	switch {
	case s.Family == "6" || s.Group.Is6():
		return 6
	case s.Family == "4" || s.Group.Is4():
		return 4
	}
	return 0
}

// Switches returns the addresses of Switch, in order.
func (s *Settings) Switches() []string {
	return strings.FieldsFunc(s.Switch, func(r rune) bool { return r == ',' })
}

// LogOff is the value of Settings.Log above every level that is logged.
const LogOff = slog.Level(1 << 10)

// Load takes each variable from overrides, else from lookup, else its default;
// an empty value counts as not given. lookup has os.LookupEnv's form and may be
// nil. The error names every bad variable, its value and the allowed ones, and
// every override that is not in the table. With ErrInStore, Load also returns the settings, for callers that need no
// secret.
func Load(lookup func(string) (string, bool), overrides map[string]string) (Settings, error) {
	var s Settings
	var errs []error
	for _, v := range table {
		text := overrides[v.Name]
		if text == "" && lookup != nil {
			text, _ = lookup(v.Name)
		}
		if err := v.give(&s, text); err != nil {
			errs = append(errs, fmt.Errorf("%s=%w", v.Name, err))
		}
	}
	if s.Family == "auto" && lookup != nil {
		switch family, _ := lookup("NCCL_SOCKET_FAMILY"); family {
		case "AF_INET":
			s.Family = "4"
		case "AF_INET6":
			s.Family = "6"
		}
	}
	if s.Topology == "" && lookup != nil {
		s.Topology = slurmTopology(lookup)
	}
	if s.SecretFile != "" {
		if err := s.readSecret(lookup); err != nil {
			errs = append(errs, fmt.Errorf("MCAST_SECRET_FILE=%q: %w", s.SecretFile, err))
		}
	}
	for _, name := range sortedKeys(overrides) {
		if !known(name) {
			errs = append(errs, fmt.Errorf("there is no setting %s; %s", name, suggestion(name)))
		}
	}
	if len(errs) == 0 {
		errs = append(errs, s.Check())
	}
	if s.Secret != "" {
		coredump.OmitHeap()
	}
	err := errors.Join(errs...)
	if err == nil {
		return s, nil
	}
	if !errors.Is(err, ErrInStore) {
		s = Settings{}
	}
	return s, Mistake{err}
}

// Set gives one variable a value in its own syntax; the empty text is its default. The error says which
// values are allowed, and leaves it to the caller to name the variable or flag that has this one.
func (s *Settings) Set(name, text string) error {
	i := slices.IndexFunc(table, func(v Variable) bool { return v.Name == name })
	if i < 0 {
		return Mistakef("there is no setting %s; %s", name, suggestion(name))
	}
	return table[i].give(s, text)
}

// give gives a variable a value, or, for the empty text, its default.
func (v *Variable) give(s *Settings, text string) error {
	if text == "" {
		text = v.Default
	}
	if v.set(s, text) {
		return nil
	}
	if v.Secret {
		text = "..."
	}
	return Mistakef("%q is not allowed: want %s", text, v.Allowed)
}

// FromEnviron loads the settings from the environment of the process.
func FromEnviron() (Settings, error) { return Load(os.LookupEnv, nil) }

// Default returns the settings when no variable is set.
func Default() Settings {
	s, err := Load(nil, nil)
	if err != nil {
		panic(err) // The table contradicts itself.
	}
	return s
}

// Check finds values that are allowed each but not together.
func (s *Settings) Check() error {
	if s.Family == "4" && s.Group.Is6() || s.Family == "6" && s.Group.Is4() {
		return Mistakef("MCAST_GROUP=%s with MCAST_FAMILY=%s is not allowed: want a group of the family, or auto", s.Group,
			s.Family)
	}
	if s.Encrypt && s.Secret == "" {
		return Mistakef("MCAST_ENCRYPT=1 without MCAST_SECRET is not allowed: want a secret that all ranks know (`mcast " +
			"secret` makes one), or MCAST_ENCRYPT=0")
	}
	if s.Group.IsValid() && s.Subgroups > 1 {
		last := s.Group
		for range s.Subgroups - 1 {
			last = last.Next()
		}
		if !last.IsMulticast() {
			return Mistakef("MCAST_GROUP=%s with MCAST_SUBGROUPS=%d is not allowed: the last group would be %s, want all of "+
				"them to be multicast, up to 239.255.255.255 or of ff00::/8",
				s.Group, s.Subgroups, last)
		}
	}
	if s.Secret == InStore { // last, so that who needs no secret knows that the rest is right
		return ErrInStore
	}
	return nil
}

// Unknown returns one warning for each MCAST_* name in environ, a list as
// os.Environ returns it, that is not in the table, with the nearest name that
// is: most of them are typos, which would otherwise have no effect in silence.
func Unknown(environ []string) []string {
	var warnings []string
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "MCAST_") && !known(name) {
			warnings = append(warnings, fmt.Sprintf("%s has no effect: %s", name, suggestion(name)))
		}
	}
	slices.Sort(warnings)
	return warnings
}

// suggestion names the variable that was probably meant, within two mistyped
// letters for every six.
func suggestion(name string) string {
	nearest, distance := "", 1+len(name)/3
	for _, v := range Variables() {
		if d := levenshtein.ComputeDistance(strings.ToUpper(name), v.Name); d < distance {
			nearest, distance = v.Name, d
		}
	}
	if nearest == "" {
		return "the variables are listed by `mcast env`"
	}
	return "did you mean " + nearest + "?"
}

func known(name string) bool {
	return slices.ContainsFunc(Variables(), func(v Variable) bool { return v.Name == name })
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
