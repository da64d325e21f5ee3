package main

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/text"
)

// Limits of a document, and of the comments of a language.
const (
	MedianWords = 18   // of the median sentence
	LongWords   = 35   // a sentence of more words is long
	LongShare   = 0.06 // of its sentences
	RiddleRate  = 2.0  // in a thousand words of prose
	CommentRate = 15.0 // lines with a riddle in a thousand lines of comments
	Columns     = 120  // of a line of prose
)

// An item of at most so many words without a full stop is a list of names, not prose.
const listOfNames = 8

// riddles are constructions that have to be read twice.
var riddles = regexp.MustCompile(
	`(?i)\b(whoever|whatever|whose|those that|of which|that of|what is|what it|what they|` +
		`who does|which of|of it|as does|so is)\b`)

// Sentence is a sentence of a document.
type Sentence struct {
	Text  string
	Words int
}

// Prose is the prose of a Markdown document: its paragraphs and list items, without tables, code and headings.
type Prose struct {
	Words     int // of the whole file as wc counts them, but for parts that a program writes
	Sentences []Sentence
	Riddles   []string // where each stands: a few words around it
	Wide      []int    // numbers of lines wider than Columns, but for tables, code and lines that cannot be broken
	Torn      []string // rows that are in no table, such as those behind a blank line
	said      int      // words of Sentences
}

// written is what a program has put into a document.
var written = regexp.MustCompile(`(?s)<!-- BEGIN \w+: written by .*?<!-- END \w+ -->`)

// unbroken is a line that nothing can break: an image, or a mark of a program.
var unbroken = regexp.MustCompile(`^(!\[[^\]]*\]\([^)]*\)|<!-- .* -->)$`)

// Read returns the prose of a Markdown document, without the parts that a program writes.
func Read(source []byte) Prose {
	source = written.ReplaceAllFunc(source, func(part []byte) []byte {
		return bytes.Repeat([]byte("\n"), bytes.Count(part, []byte("\n"))) // numbers of lines stay
	})
	p := Prose{Words: len(bytes.Fields(source))}
	markdown := goldmark.New(goldmark.WithExtensions(extension.Table))
	document := markdown.Parser().Parse(text.NewReader(source))
	_ = ast.Walk(document, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n.Kind() {
		case ast.KindHeading, ast.KindFencedCodeBlock, ast.KindCodeBlock, ast.KindHTMLBlock, extast.KindTable:
			return ast.WalkSkipChildren, nil
		case ast.KindParagraph, ast.KindTextBlock:
			p.paragraph(plain(n, source))
			return ast.WalkSkipChildren, nil
		}
		return ast.WalkContinue, nil
	})
	fenced := false
	for i, line := range strings.Split(string(source), "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
		}
		start := strings.TrimSpace(line)
		if fenced || strings.HasPrefix(start, "|") || unbroken.MatchString(start) {
			continue
		}
		if utf8.RuneCountInString(line) > Columns && strings.ContainsRune(start[:min(len(start), Columns)], ' ') {
			p.Wide = append(p.Wide, i+1)
		}
	}
	return p
}

// plain is the text of a paragraph: a piece of code and an image are a word, a link is its text.
func plain(n ast.Node, source []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.CodeSpan:
			b.WriteString("code")
			return ast.WalkSkipChildren, nil
		case *ast.Image, *ast.RawHTML:
			return ast.WalkSkipChildren, nil
		case *ast.AutoLink:
			b.WriteString("link")
		case *ast.Text:
			b.Write(n.Segment.Value(source))
			if n.SoftLineBreak() || n.HardLineBreak() {
				b.WriteByte(' ')
			}
		case *ast.String:
			b.Write(n.Value)
		}
		return ast.WalkContinue, nil
	})
	return strings.TrimSpace(b.String())
}

// end is where a sentence may end.
var end = regexp.MustCompile(`[.!?:]["')\]]*\s+`)

func (p *Prose) paragraph(s string) {
	if strings.HasPrefix(s, "|") {
		p.Torn = append(p.Torn, s)
		return
	}
	if words(s) <= listOfNames && !strings.ContainsAny(s, ".!?") {
		return
	}
	for _, m := range riddles.FindAllStringIndex(s, -1) {
		from, to := max(0, m[0]-30), min(len(s), m[1]+30)
		p.Riddles = append(p.Riddles, strings.ToValidUTF8(s[from:m[0]]+"["+s[m[0]:m[1]]+"]"+s[m[1]:to], ""))
	}
	from := 0
	for _, m := range end.FindAllStringIndex(s, -1) {
		next, _ := utf8.DecodeRuneInString(s[m[1]:])
		if s[m[0]] == ':' || abbreviated(s[from:m[0]]) || unicode.IsLower(next) && !strings.HasPrefix(s[m[1]:], "code") {
			continue
		}
		p.sentence(s[from:m[1]])
		from = m[1]
	}
	p.sentence(s[from:])
}

func abbreviated(s string) bool {
	word := s[strings.LastIndexByte(s, ' ')+1:]
	return slices.Contains([]string{"e.g", "i.e", "vs", "al", "Fig", "Sec", "cf"}, strings.Trim(word, "("))
}

func (p *Prose) sentence(s string) {
	if n := words(s); n > 0 {
		p.Sentences = append(p.Sentences, Sentence{Text: strings.TrimSpace(s), Words: n})
		p.said += n
	}
}

// words counts what has a letter or a digit.
func words(s string) int {
	n := 0
	for _, field := range strings.Fields(s) {
		if strings.ContainsFunc(field, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
			n++
		}
	}
	return n
}

// Median returns the words of the median sentence.
func (p *Prose) Median() int {
	if len(p.Sentences) == 0 {
		return 0
	}
	lengths := make([]int, len(p.Sentences))
	for i, s := range p.Sentences {
		lengths[i] = s.Words
	}
	slices.Sort(lengths)
	return lengths[len(lengths)/2]
}

// Long returns the long sentences.
func (p *Prose) Long() []Sentence {
	var long []Sentence
	for _, s := range p.Sentences {
		if s.Words > LongWords {
			long = append(long, s)
		}
	}
	return long
}

// LongShare returns the share of long sentences.
func (p *Prose) LongShare() float64 {
	return float64(len(p.Long())) / float64(max(1, len(p.Sentences)))
}

// RiddleRate returns riddles in a thousand words of prose.
func (p *Prose) RiddleRate() float64 { return 1000 * float64(len(p.Riddles)) / float64(max(1, p.said)) }

func (p *Prose) add(other Prose) {
	p.Words += other.Words
	p.said += other.said
	p.Sentences = append(p.Sentences, other.Sentences...)
	p.Riddles = append(p.Riddles, other.Riddles...)
	p.Wide = append(p.Wide, other.Wide...)
	p.Torn = append(p.Torn, other.Torn...)
}
