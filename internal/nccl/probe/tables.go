package probe

import (
	"debug/elf"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Tables are the versions of the tables that a plugin has, or that an NCCL looks for, in ascending
// order.
type Tables struct {
	Net      []int `json:"net"`
	CollNet  []int `json:"collnet"`
	Tuner    []int `json:"tuner"`
	Profiler []int `json:"profiler"`
}

var table = regexp.MustCompile(`nccl(NetPlugin|CollNetPlugin|TunerPlugin|Profiler)_v(\d+)`)

func (t *Tables) add(match []string) {
	list := map[string]*[]int{
		"NetPlugin": &t.Net, "CollNetPlugin": &t.CollNet, "TunerPlugin": &t.Tuner, "Profiler": &t.Profiler,
	}[match[1]]
	version, err := strconv.Atoi(match[2])
	if err == nil && !slices.Contains(*list, version) {
		*list = append(*list, version)
		slices.Sort(*list)
	}
}

// Exported returns the tables that a library exports.
func Exported(path string) (t Tables, err error) {
	f, err := elf.Open(path)
	if err != nil {
		return t, err
	}
	defer func() { _ = f.Close() }()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return t, fmt.Errorf("%s: %w", path, err)
	}
	for _, s := range symbols {
		if m := table.FindStringSubmatch(s.Name); m != nil && m[0] == s.Name && s.Section != elf.SHN_UNDEF {
			t.add(m)
		}
	}
	return t, nil
}

// Wanted returns the tables that an NCCL looks for. It does so by name, and the names are among its
// strings: so nobody has to know the versions that are yet to come.
func Wanted(path string) (t Tables, err error) {
	f, err := elf.Open(path)
	if err != nil {
		return t, err
	}
	defer func() { _ = f.Close() }()
	strings := f.Section(".rodata")
	if strings == nil {
		return t, fmt.Errorf("%s has no .rodata", path)
	}
	text, err := strings.Data()
	if err != nil {
		return t, fmt.Errorf("%s: %w", path, err)
	}
	found := map[string][]string{}
	for _, m := range table.FindAllSubmatch(text, -1) {
		found[string(m[0])] = []string{string(m[0]), string(m[1]), string(m[2])}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		t.add(found[name])
	}
	return t, nil
}

// Meet returns the newest version that both lists have; 0: none.
func Meet(plugin, nccl []int) int {
	newest := 0
	for _, v := range plugin {
		if slices.Contains(nccl, v) {
			newest = max(newest, v)
		}
	}
	return newest
}

// String writes them as in "net v8 to v12, CollNet v8 to v12, tuner v1, v4, profiler none".
func (t Tables) String() string {
	return fmt.Sprintf("net %s, CollNet %s, tuner %s, profiler %s",
		versions(t.Net), versions(t.CollNet), versions(t.Tuner), versions(t.Profiler))
}

func versions(list []int) string {
	var parts []string
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && list[j+1] == list[j]+1 {
			j++
		}
		text := fmt.Sprintf("v%d", list[i])
		if j > i {
			text += fmt.Sprintf(" to v%d", list[j])
		}
		parts = append(parts, text)
		i = j + 1
	}
	if parts == nil {
		return "none"
	}
	return strings.Join(parts, ", ")
}
