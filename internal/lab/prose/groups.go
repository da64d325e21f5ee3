package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Group is some of the documents, which have a limit of words together.
type Group struct {
	Name  string
	Words int // at most
	globs []string
}

// generated are the documents that programs write.
var generated = []string{
	"docs/reference/counters.md", "docs/reference/settings.md", "docs/reference/faults.md",
	"docs/project/torch-suite.md", "docs/project/torch-fsdp-suite.md",
}

// Groups are the documents that people write. benchmarks/results has no limit, since it only grows.
var Groups = []Group{
	{"what a user may meet", 30_000, []string{
		"README.md", "CHANGELOG.md", "SECURITY.md", "docs/README.md", "docs/start/*.md", "docs/how-to/*.md",
		"docs/reference/*.md", "docs/explain/*.md",
		"examples/*.md", "conformance/README.md",
	}},
	{"decisions", 25_000, []string{"docs/decisions/*.md"}},
	{"everything", 80_000, []string{
		"*.md", ".github/*.md", ".github/ISSUE_TEMPLATE/*.md", "docs/*.md", "docs/*/*.md", "examples/*.md",
		"conformance/*.md",
	}},
}

func (g Group) files(root string) ([]string, error) {
	var files []string
	for _, glob := range g.globs {
		found, err := filepath.Glob(filepath.Join(root, glob))
		if err != nil {
			return nil, err
		}
		for _, file := range found {
			name, err := filepath.Rel(root, file)
			if err != nil {
				return nil, err
			}
			if !slices.Contains(generated, filepath.ToSlash(name)) {
				files = append(files, file)
			}
		}
	}
	return files, nil
}

// read returns the prose of all documents of a group.
func (g Group) read(root string) (all Prose, err error) {
	files, err := g.files(root)
	if err != nil {
		return Prose{}, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return Prose{}, err
		}
		all.add(Read(text))
	}
	return all, nil
}

// Language is a language of the repository with its comments.
type Language struct {
	Name     string
	suffixes []string
	comments func(source string) []comment
}

// Languages are those that the project is written in.
var Languages = []Language{
	{"Go", []string{".go"}, slashComments},
	{"C", []string{".c", ".h"}, slashComments},
	{"Python", []string{".py"}, pythonComments},
}

// Comments are lines of comments.
type Comments struct {
	Lines   int
	Riddles []string // FILE:LINE: the line
}

// Rate returns lines with a riddle in a thousand.
func (c Comments) Rate() float64 { return 1000 * float64(len(c.Riddles)) / float64(max(1, c.Lines)) }

func (l Language) count(root string) (c Comments, err error) {
	err = sources(root, l.suffixes, func(path string, source []byte) error {
		for _, line := range l.comments(string(source)) {
			c.Lines++
			if riddles.MatchString(line.text) {
				c.Riddles = append(c.Riddles, fmt.Sprintf("%s:%d: %s", path, line.number, line.text))
			}
		}
		return nil
	})
	return c, err
}

// made are folders that no person writes: builds, and recorded inputs of tests.
var made = []string{"build", "dist", "bin", "lib", "testdata"}

// sources visits the files below a folder with these suffixes, but in hidden folders and in made ones.
func sources(root string, suffixes []string, visit func(path string, source []byte) error) error {
	return filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != root && (strings.HasPrefix(name, ".") || slices.Contains(made, name)) {
			return filepath.SkipDir
		}
		if d.IsDir() || !slices.Contains(suffixes, filepath.Ext(path)) {
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return visit(path, source)
	})
}

// comment is a line of one.
type comment struct {
	number int
	text   string
}

// slashComments are the lines of // and of /* */, of those that a line begins or ends with.
func slashComments(source string) []comment {
	var lines []comment
	inside := false
	for i, line := range strings.Split(source, "\n") {
		line = strings.TrimSpace(line)
		_, trailing, found := strings.Cut(line, " // ")
		switch {
		case inside, strings.HasPrefix(line, "/*"):
			lines = append(lines, comment{i + 1, line})
			inside = !strings.Contains(line, "*/")
		case strings.HasPrefix(line, "//"):
			lines = append(lines, comment{i + 1, line})
		case found && !strings.ContainsAny(trailing, "`\""):
			lines = append(lines, comment{i + 1, trailing})
		}
	}
	return lines
}

// pythonComments are the lines of # and of strings in three quotes.
func pythonComments(source string) []comment {
	var lines []comment
	inside := false
	for i, line := range strings.Split(source, "\n") {
		line = strings.TrimSpace(line)
		quotes := strings.Count(line, `"""`)
		_, trailing, found := strings.Cut(line, "  # ")
		switch {
		case inside, strings.HasPrefix(line, `"""`):
			lines = append(lines, comment{i + 1, line})
			if quotes == 1 {
				inside = !inside
			}
		case strings.HasPrefix(line, "#"):
			lines = append(lines, comment{i + 1, line})
		case found:
			lines = append(lines, comment{i + 1, trailing})
		}
	}
	return lines
}
