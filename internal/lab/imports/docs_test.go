package main

import (
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
	for _, glob := range []string{"*.md", "docs/*.md", "docs/*/*.md", "examples/*.md", "conformance/*.md", "benchmarks/results/*.md", "benchmarks/results/*/*.md", ".github/*.md", ".github/*/*.md", "llms.txt"} {
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
