package main

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var rewrite = flag.Bool("rewrite", false, "write the drawing into docs/project/architecture.md")

// TestNothingPointsUpward holds the order of wings.txt, and the drawing in docs/project/architecture.md.
func TestNothingPointsUpward(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	// so that go test does not repeat a result from before a change
	for _, folder := range []string{"cmd", "internal", "ncclnet", "pkg"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, folder), func(path string, _ fs.DirEntry, err error) error {
			if err == nil {
				_, err = os.Stat(path)
			}
			return err
		}))
	}
	packages, err := load(root)
	require.NoError(t, err)
	h, err := newHouse(parseWings(wingsHere), packages)
	require.NoError(t, err)
	assert.Empty(t, h.up, "imports from a higher wing; see internal/lab/imports/wings.txt")
	assert.Empty(t, h.circles())

	path := filepath.Join(root, "docs", "project", "architecture.md")
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	drawing := regexp.MustCompile("(?s)(```\n)wing .*?(```)")
	require.Len(t, drawing.FindAll(b, -1), 1, "drawings in architecture.md")
	now := drawing.ReplaceAll(b, []byte("${1}"+h.draw(false)+"${2}"))
	if *rewrite {
		require.NoError(t, os.WriteFile(path, now, 0o644))
		return
	}
	assert.Equal(t, string(now), string(b), "go test ./internal/lab/imports -rewrite")
}

// TestUsersHaveNoLaboratory: what the packages have, mcast and the library, links nothing that only experiments need.
func TestUsersHaveNoLaboratory(t *testing.T) {
	packages, err := load(filepath.Join("..", "..", ".."))
	require.NoError(t, err)
	seen := map[string]bool{}
	var visit func(name, by string)
	visit = func(name, by string) {
		assert.False(t, strings.HasPrefix(name, "internal/lab/"), "%s imports %s", by, name)
		if seen[name] {
			return
		}
		seen[name] = true
		for _, imported := range packages[name] {
			visit(imported, name)
		}
	}
	for _, shipped := range []string{"cmd/mcast", "ncclnet"} {
		require.NotEmpty(t, packages[shipped], shipped)
		visit(shipped, "nobody")
	}
}

func TestHouse(t *testing.T) {
	wings := parseWings("# a house\nroof a # the top\n\nmiddle b\nmiddle c\ncellar a/x\n")
	h, err := newHouse(wings, map[string][]string{
		"a": {"b", "a/x"}, "a/x": nil, "a/x/y": {"a/x", "b/z"}, "b/z": {"c"}, "b": {"a/x/y"}, "c": nil,
	})
	require.NoError(t, err)
	assert.Equal(t, []arrow{{"a/x/y", "b/z"}}, h.up)
	assert.Equal(t, [][]string{{"middle", "cellar"}}, h.circles())
	assert.Equal(t, map[string]int{"a/x": 1, "c": 1, "b/z": 2, "a/x/y": 3, "b": 4, "a": 5}, h.floor)
	drawing := h.draw(true)
	assert.Contains(t, drawing, "roof    1      5-5     middle 1, cellar 1\n")
	assert.Contains(t, drawing, "b/z -> c\n")
	assert.Contains(t, drawing, "up: a/x/y -> b/z\n")
	assert.Contains(t, drawing, "rooms 6, wings 3, floors 5, arrows 6, upward 1, circles 1\n")

	_, err = newHouse(wings, map[string][]string{"ab": nil})
	assert.ErrorContains(t, err, "ab is in no wing")
}
