package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"
)

// screen shows lines in place of those before, and moves among them by keys.
type screen struct {
	lines []string
	top   int         // the first line that is shown
	keys  chan string // what was typed; nil: nothing can be
}

// newScreen takes over the terminal. The caller gives it back by calling restore.
func newScreen() (s *screen, restore func(), err error) {
	s, restore = &screen{}, func() {}
	if in := int(os.Stdin.Fd()); term.IsTerminal(in) {
		before, err := term.MakeRaw(in)
		if err != nil {
			return nil, nil, err
		}
		restore = func() { _ = term.Restore(in, before) }
		s.keys = make(chan string)
		go s.read()
	}
	_, err = os.Stdout.WriteString("\x1b[?1049h\x1b[?25l") // another screen, without a cursor
	if err != nil {
		restore()
		return nil, nil, err
	}
	back := restore
	return s, func() {
		_, _ = os.Stdout.WriteString("\x1b[?25h\x1b[?1049l")
		back()
	}, nil
}

// read passes keys on. It ends with the process: a read of a terminal cannot be taken back.
func (s *screen) read() {
	typed := make([]byte, 16)
	for {
		n, err := os.Stdin.Read(typed)
		if err != nil {
			return
		}
		key := string(typed[:n])
		if strings.ContainsAny(key, "\x03\x04") { // typed ahead, while nobody looked
			key = "\x03"
		}
		s.keys <- key
	}
}

// pressed returns what gives the keys; nil, which gives none, without a screen.
func (s *screen) pressed() <-chan string {
	if s == nil {
		return nil
	}
	return s.keys
}

// press does what a key asks for, and reports whether that is to end.
func (s *screen) press(key string) (end bool, err error) {
	width, height, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil || !s.move(key, height) {
		return true, err
	}
	return false, s.draw(width, height)
}

// move goes to other lines. It reports whether the key asks for anything but the end.
func (s *screen) move(key string, height int) bool {
	switch key {
	case "q", "\x03", "\x04": // control-C and control-D, which make no signal here
		return false
	case "j", "\x1b[B", "\x1bOB":
		s.top++
	case "k", "\x1b[A", "\x1bOA":
		s.top--
	case " ", "\x1b[6~":
		s.top += height - 2
	case "b", "\x1b[5~":
		s.top -= height - 2
	case "g", "\x1b[H":
		s.top = 0
	case "G", "\x1b[F":
		s.top = len(s.lines)
	}
	return true
}

// page returns the lines that there is room for. The last one says how to see the others.
func (s *screen) page(width, height int) []string {
	if width < 1 || height < 2 { // a terminal that does not say how large it is
		width, height = 80, 24
	}
	s.top = max(0, min(s.top, len(s.lines)-height+1))
	shown := s.lines
	if len(shown) > height {
		last := min(s.top+height-1, len(s.lines))
		shown = append(append([]string{}, s.lines[s.top:last]...),
			fmt.Sprintf("lines %d to %d of %d: arrows, space, b; q ends", s.top+1, last, len(s.lines)))
	}
	out := make([]string, len(shown))
	for i, l := range shown {
		r := []rune(l)
		out[i] = string(r[:min(len(r), width)])
	}
	return out
}

// show shows other lines.
func (s *screen) show(lines []string) error {
	width, height, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil {
		return err
	}
	s.lines = lines
	return s.draw(width, height)
}

func (s *screen) draw(width, height int) error {
	_, err := os.Stdout.WriteString("\x1b[H" + strings.Join(s.page(width, height), "\x1b[K\r\n") + "\x1b[K\x1b[J")
	return err
}
