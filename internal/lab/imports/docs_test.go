package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	named = regexp.MustCompile("`((?:internal|pkg|cmd|ncclnet|conformance|scripts|benchmarks|docs)/[\\w./*-]+)`")
	links = regexp.MustCompile(`\]\(([^)#:\s]+)(?:#[^)]*)?\)`)
	// placeholder is the name of a file that somebody is to write.
	placeholder = regexp.MustCompile(`NAME|NNNN|_vN|TARGET`)
)

// TestDocumentsNameWhatIsThere: paths and links in the documents lead somewhere.
func TestDocumentsNameWhatIsThere(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	var documents []string
	for _, glob := range []string{"*.md", "docs/*.md", "docs/*/*.md", "examples/*.md", "conformance/*.md",
		"benchmarks/results/*.md", "benchmarks/results/*/*.md", ".github/*.md", ".github/*/*.md", "llms.txt"} {
		found, err := filepath.Glob(filepath.Join(root, glob))
		require.NoError(t, err)
		require.NotEmpty(t, found, glob)
		documents = append(documents, found...)
	}
	for _, document := range documents {
		b, err := os.ReadFile(document)
		require.NoError(t, err)
		for _, m := range named.FindAllStringSubmatch(string(b), -1) {
			exists(t, document, filepath.Join(root, m[1]))
		}
		for _, m := range links.FindAllStringSubmatch(string(b), -1) {
			exists(t, document, filepath.Join(filepath.Dir(document), m[1]))
		}
	}
}

func exists(t *testing.T, document, path string) {
	t.Helper()
	if placeholder.MatchString(path) || strings.Contains(path, "/build/") {
		return
	}
	found, err := filepath.Glob(path)
	require.NoError(t, err)
	assert.NotEmpty(t, found, "%s names %s", filepath.Base(document), path)
}

// TestEachDocumentIsTwoStepsFromREADME: README links it, or a page that README links does.
func TestEachDocumentIsTwoStepsFromREADME(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	reached := map[string]bool{"README.md": true}
	for range 2 {
		for page := range maps.Clone(reached) {
			b, err := os.ReadFile(filepath.Join(root, page))
			if err != nil || filepath.Ext(page) != ".md" {
				continue // a folder, or no document
			}
			for _, m := range links.FindAllStringSubmatch(string(b), -1) {
				reached[filepath.Join(filepath.Dir(page), m[1])] = true
			}
		}
	}
	for _, glob := range []string{"*.md", "docs/*.md", "docs/*/*.md", "conformance/README.md", "examples/README.md"} {
		found, err := filepath.Glob(filepath.Join(root, glob))
		require.NoError(t, err)
		require.NotEmpty(t, found, glob)
		for _, document := range found {
			page, err := filepath.Rel(root, document)
			require.NoError(t, err)
			if !strings.HasPrefix(page, "docs/decisions/0") { // their index has them, by topic
				assert.True(t, reached[page], "%s is not reached from README.md in two steps", page)
			}
		}
	}
}
