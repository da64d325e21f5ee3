package collective

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// Place is a member of a communicator by its number there. Members of a column or of a host have other numbers than the
// ranks of the group that it is of: the group knows both.
type Place int

// mark stands for a place in Text.Words.
const mark = "\x00"

// Format writes what Text.In replaces.
func (Place) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(mark)) }

// Text is words about members. Their names come last, of who shows them.
type Text struct {
	Words  string
	Places []Place
}

// Textf is fmt.Sprintf with arguments that may be a Place or a Text.
func Textf(format string, args ...any) (t Text) {
	for i, a := range args {
		switch a := a.(type) {
		case Place:
			t.Places = append(t.Places, a)
		case Text:
			t.Places = append(t.Places, a.Places...)
			args[i] = a.Words
		}
	}
	t.Words = fmt.Sprintf(format, args...)
	return t
}

// In returns the words with the names of the members.
func (t Text) In(name func(place int) int) string {
	words := t.Words
	for _, p := range t.Places {
		words = strings.Replace(words, mark, strconv.Itoa(name(int(p))), 1)
	}
	return words
}

// String has members keep their numbers.
func (t Text) String() string { return t.In(func(place int) int { return place }) }

// TargetText says what a reduction to a target is.
func TargetText(t wire.Target) Text {
	if root, one := t.Root(); one {
		return Textf("reduce to rank %d", Place(root))
	}
	return Textf("%v", t)
}
