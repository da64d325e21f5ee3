package config

import (
	"strconv"
	"strings"
)

// Setting is a variable with its value, spelled.
type Setting struct{ Name, Value string }

func (s Setting) String() string { return s.Name + "=" + s.Value }

// Alike returns the settings that change what a rank does on the wire, in the order of the table:
// ranks that differ in them must not start.
func (s *Settings) Alike() []Setting {
	group := ""
	if s.Group.IsValid() {
		group = s.Group.String()
	}
	return []Setting{
		{"MCAST_FABRIC", s.Fabric},
		{"MCAST_TIMEOUT", s.Timeout.String()},
		{"MCAST_FAMILY", s.Family},
		{"MCAST_MULTICAST", s.Multicast},
		{"MCAST_NODES", s.Nodes},
		{"MCAST_GROUP", group},
		{"MCAST_PORT", strconv.Itoa(int(s.Port))},
		{"MCAST_CHAINS", strconv.Itoa(s.Chains)},
		{"MCAST_SUBGROUPS", strconv.Itoa(s.Subgroups)},
		{"MCAST_CHUNK", strconv.Itoa(s.Chunk)},
		{"MCAST_WINDOW", strconv.Itoa(s.Window)},
		{"MCAST_EAGER", strconv.Itoa(s.Eager)},
		{"MCAST_OUTPUTS", strconv.Itoa(s.Outputs)},
		{"MCAST_SWITCH_MODE", s.SwitchMode},
		{"MCAST_ENCRYPT", spell(s.Encrypt)},
		{"MCAST_CHECKSUM", s.Checksum},
	}
}

// spell is how a flag is given.
func spell(flag bool) string {
	if flag {
		return "1"
	}
	return "0"
}

// Agreed spells those of Alike that differ from the defaults, as "NAME=value NAME=value".
func (s *Settings) Agreed() string {
	defaults := Default()
	at := defaults.Alike()
	var off []string
	for i, setting := range s.Alike() {
		if setting != at[i] {
			off = append(off, setting.String())
		}
	}
	return strings.Join(off, " ")
}

// Difference is a setting with different values in two texts.
type Difference struct{ A, B Setting }

// Differences returns the differences between two texts of Agreed, in the order of the table. A setting that a text
// leaves out has its default there.
func Differences(a, b string) (found []Difference) {
	inA, inB := spelled(a), spelled(b)
	defaults := Default()
	for _, at := range defaults.Alike() {
		d := Difference{at, at}
		if value, ok := inA[at.Name]; ok {
			d.A.Value = value
		}
		if value, ok := inB[at.Name]; ok {
			d.B.Value = value
		}
		if d.A != d.B {
			found = append(found, d)
		}
	}
	return found
}

// spelled reads a text of Agreed.
func spelled(text string) map[string]string {
	values := make(map[string]string)
	for _, entry := range strings.Fields(text) {
		name, value, _ := strings.Cut(entry, "=")
		values[name] = value
	}
	return values
}
