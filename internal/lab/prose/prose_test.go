package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const root = "../../.."

// TestDocumentsAreReadOnce holds each document to the limits of CONTRIBUTING.md.
func TestDocumentsAreReadOnce(t *testing.T) {
	all, err := Groups[len(Groups)-1].files(root)
	require.NoError(t, err)
	require.NotEmpty(t, all)
	for _, file := range all {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		p := Read(text)
		name, err := filepath.Rel(root, file)
		require.NoError(t, err)
		assert.LessOrEqual(t, p.Median(), MedianWords, "%s: words of the median sentence", name)
		assert.LessOrEqual(t, len(p.Long()), max(1, int(LongShare*float64(len(p.Sentences)))),
			"%s: sentences of more than %d words", name, LongWords)
		assert.LessOrEqual(t, len(p.Riddles), max(1, int(RiddleRate*float64(p.said)/1000)), "%s: riddles: %q", name,
			p.Riddles)
		assert.Empty(t, p.Torn, "%s: rows in no table", name)
		assert.Empty(t, p.Wide, "%s: lines of more than %d columns", name, Columns)
	}
}

// TestDocumentsAreShort holds the words of each group.
func TestDocumentsAreShort(t *testing.T) {
	for _, group := range Groups {
		all, err := group.read(root)
		require.NoError(t, err)
		assert.LessOrEqual(t, all.Words, group.Words, "words of %s", group.Name)
		assert.Greater(t, all.Words, group.Words/2, "words of %s: are its files elsewhere?", group.Name)
	}
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	assert.LessOrEqual(t, Read(readme).Words, 700, "words of README.md")
	tutorials, err := filepath.Glob(filepath.Join(root, "docs/start/*.md"))
	require.NoError(t, err)
	require.NotEmpty(t, tutorials)
	for _, tutorial := range tutorials {
		text, err := os.ReadFile(tutorial)
		require.NoError(t, err)
		assert.LessOrEqual(t, Read(text).Words, 800, "words of %s", tutorial)
	}
}

// TestCommentsAreReadOnce holds the comments of each language.
func TestCommentsAreReadOnce(t *testing.T) {
	for _, language := range Languages {
		c, err := language.count(root)
		require.NoError(t, err)
		require.Positive(t, c.Lines)
		assert.LessOrEqual(t, c.Rate(), CommentRate, "%s: riddles in a thousand lines of comments:\n%s", language.Name,
			strings.Join(c.Riddles, "\n"))
	}
}

// TestLinesOfC holds the width of C, as linters hold that of Go and of Python.
func TestLinesOfC(t *testing.T) {
	err := sources(root, []string{".c", ".h"}, func(path string, source []byte) error {
		for i, line := range strings.Split(string(source), "\n") {
			assert.LessOrEqual(t, utf8.RuneCountInString(line), Columns, "%s:%d: columns", path, i+1)
		}
		return nil
	})
	require.NoError(t, err)
}

// TestTextsAreReadOnce holds what programs print.
func TestTextsAreReadOnce(t *testing.T) {
	p, err := Texts(root)
	require.NoError(t, err)
	require.Greater(t, p.said, 10_000, "words of messages and help")
	assert.LessOrEqual(t, p.RiddleRate(), RiddleRate, "riddles in a thousand words:\n%s", strings.Join(p.Riddles, "\n"))
}

func TestRead(t *testing.T) {
	p := Read([]byte("# A heading of which nothing is counted\n\n" +
		"One sentence with `some code whose words are one`. Another: it goes on, e.g. here. [A link](whose.md) is text.\n\n" +
		"| a table | whose words | are not prose |\n|---|---|---|\n| x | y | z |\n\n| torn | from | it |\n\n" +
		"```\nneither is code, whose lines may be wide: " + strings.Repeat("x ", Columns) + "\n```\n\n" +
		"- a name\n- Whoever reads this item reads a riddle. " + strings.Repeat("Word ", LongWords) + "end.\n\n" +
		"<!-- BEGIN table: written by a program -->\nwhatever\n<!-- END table -->\n\n" +
		strings.Repeat("wide ", Columns/5) + "line.\n"))
	var lengths []int
	for _, s := range p.Sentences {
		lengths = append(lengths, s.Words)
	}
	require.Equal(t, []int{4, 6, 4, 7, LongWords + 1, Columns/5 + 1}, lengths)
	require.Len(t, p.Long(), 1)
	require.Len(t, p.Riddles, 1)
	require.Contains(t, p.Riddles[0], "[Whoever]")
	require.Len(t, p.Torn, 1)
	require.Equal(t, []int{16, 22}, p.Wide)
	require.Equal(t, 7, p.Median())
}

func TestCommentsOfLanguages(t *testing.T) {
	require.Equal(t, []comment{{1, "// one"}, {2, "two"}, {4, "/* three"}, {5, "four */"}},
		slashComments("// one\nx := 1 // two\ny := `a // b`\n/* three\nfour */\n"))
	require.Equal(t, []comment{{1, `"""One.`}, {2, "two"}, {3, `"""`}, {4, "three"}, {5, "# four"}, {6, `"""five"""`}},
		pythonComments("\"\"\"One.\ntwo\n\"\"\"\nx = 1  # three\n# four\n\"\"\"five\"\"\"\ny = 2\n"))
}

// TestGlossaryHasEachWordOnce: a word has one meaning.
func TestGlossaryHasEachWordOnce(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/reference/glossary.md"))
	require.NoError(t, err)
	rows := regexp.MustCompile(`(?m)^\| ([^|]+) \|`).FindAllStringSubmatch(string(text), -1)
	require.Greater(t, len(rows), 50)
	seen := map[string]bool{}
	for _, row := range rows {
		if row[1] == "word" {
			continue // the head of a table
		}
		for word := range strings.SplitSeq(row[1], ", ") {
			assert.False(t, seen[word], "%q has two rows", word)
			seen[word] = true
		}
	}
}

// TestGlossaryNamesFolders: the code of each table is where the glossary says.
func TestGlossaryNamesFolders(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/reference/glossary.md"))
	require.NoError(t, err)
	said := regexp.MustCompile(`(?m)^The code is in (?:.+\n)+`).FindAllString(string(text), -1)
	require.NotEmpty(t, said)
	for _, s := range said {
		beside := "" // a name without a slash is of a folder beside the one before
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(s, -1) {
			folder := filepath.FromSlash(name[1])
			if filepath.Dir(folder) == "." {
				folder = filepath.Join(beside, folder)
			}
			beside = filepath.Dir(folder)
			assert.DirExists(t, filepath.Join(root, folder))
		}
	}
}
