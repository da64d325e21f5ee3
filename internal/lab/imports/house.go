package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// wing is a part of the house. Packages belong to the wing with the longest prefix of theirs.
type wing struct {
	name     string
	prefixes []string
}

// parseWings reads a line for each wing, its name and its prefixes, the highest wing first. Lines
// of one name that follow each other are of one wing.
func parseWings(text string) (wings []wing) {
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		switch last := len(wings) - 1; {
		case len(words) == 0:
		case last >= 0 && wings[last].name == words[0]:
			wings[last].prefixes = append(wings[last].prefixes, words[1:]...)
		default:
			wings = append(wings, wing{words[0], words[1:]})
		}
	}
	return wings
}

type arrow struct{ from, to string }

// house is a module's packages, by wing.
type house struct {
	wings   []wing
	imports map[string][]string // of each package, those of the same module
	wing    map[string]int      // index of each package's wing
	floor   map[string]int      // imports to the ground on the longest way; 1 is the ground
	arrows  []arrow
	up      []arrow // into a higher wing
}

// newHouse sorts packages into wings. A package that no wing takes is an error: its author must say
// where it belongs.
func newHouse(wings []wing, imports map[string][]string) (*house, error) {
	h := &house{wings: wings, imports: imports, wing: map[string]int{}, floor: map[string]int{}}
	for name := range imports {
		longest := -1
		for i, w := range wings {
			for _, prefix := range w.prefixes {
				if (name == prefix || strings.HasPrefix(name, prefix+"/")) && len(prefix) > longest {
					h.wing[name], longest = i, len(prefix)
				}
			}
		}
		if longest < 0 {
			return nil, fmt.Errorf("%s is in no wing; add it to internal/lab/imports/wings.txt, below all that imports it", name)
		}
	}
	for _, from := range slices.Sorted(maps.Keys(imports)) {
		h.climb(from)
		for _, to := range imports[from] {
			h.arrows = append(h.arrows, arrow{from, to})
			if h.wing[to] < h.wing[from] {
				h.up = append(h.up, arrow{from, to})
			}
		}
	}
	return h, nil
}

// climb finds a package's floor. Go knows no circles of packages, so it ends.
func (h *house) climb(name string) int {
	if h.floor[name] == 0 {
		floor := 1
		for _, to := range h.imports[name] {
			floor = max(floor, 1+h.climb(to))
		}
		h.floor[name] = floor
	}
	return h.floor[name]
}

// circles returns the sets of wings that import each other, directly or by way of others.
func (h *house) circles() (circles [][]string) {
	n := len(h.wings)
	reach := make([][]bool, n)
	for i := range reach {
		reach[i] = make([]bool, n)
	}
	for _, a := range h.arrows {
		reach[h.wing[a.from]][h.wing[a.to]] = true
	}
	for via := range n {
		for i := range n {
			for j := range n {
				reach[i][j] = reach[i][j] || reach[i][via] && reach[via][j]
			}
		}
	}
	seen := make([]bool, n)
	for i := range n {
		var circle []string
		for j := i; j < n; j++ {
			if !seen[j] && i != j && reach[i][j] && reach[j][i] {
				seen[j] = true
				circle = append(circle, h.wings[j].name)
			}
		}
		if len(circle) > 0 {
			circles = append(circles, append([]string{h.wings[i].name}, circle...))
		}
	}
	return circles
}

// draw writes down the wings from top to bottom, what points upward, and the sums.
func (h *house) draw(list bool) string {
	var out strings.Builder
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "wing\trooms\tfloors\timports from")
	for i, w := range h.wings {
		rooms, low, high := 0, len(h.imports), 0
		for name, at := range h.wing {
			if at == i {
				rooms++
				high = max(high, h.floor[name])
				low = min(low, h.floor[name])
			}
		}
		if rooms == 0 {
			continue
		}
		below := map[int]int{}
		for _, a := range h.arrows {
			if h.wing[a.from] == i && h.wing[a.to] != i {
				below[h.wing[a.to]]++
			}
		}
		var from []string
		for _, to := range slices.Sorted(maps.Keys(below)) {
			from = append(from, fmt.Sprintf("%s %d", h.wings[to].name, below[to]))
		}
		line := fmt.Sprintf("%s\t%d\t%d-%d", w.name, rooms, low, high)
		if len(from) > 0 {
			line += "\t" + strings.Join(from, ", ")
		}
		fmt.Fprintln(table, line)
	}
	_ = table.Flush() // a Builder takes everything
	if list {
		for _, a := range h.arrows {
			fmt.Fprintf(&out, "%s -> %s\n", a.from, a.to)
		}
	}
	for _, a := range h.up {
		fmt.Fprintf(&out, "up: %s -> %s\n", a.from, a.to)
	}
	circles := h.circles()
	for _, c := range circles {
		fmt.Fprintf(&out, "circle: %s\n", strings.Join(c, ", "))
	}
	floors := slices.Max(slices.Collect(maps.Values(h.floor)))
	fmt.Fprintf(&out, "rooms %d, wings %d, floors %d, arrows %d, upward %d, circles %d\n",
		len(h.imports), len(h.wings), floors, len(h.arrows), len(h.up), len(circles))
	return out.String()
}
