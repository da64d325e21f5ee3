package main

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	// notCode is what no name of C is in: comments, strings and characters.
	notCode = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'`)
	// defines finds functions and variables at the left margin.
	defines = regexp.MustCompile(`(?m)^(\w[\w \t*()]*?)\b(\w+)(?:\([^;{}]*\)\s*\{|(?:\[[^\]\n]*\])*(?:;| =))`)
	// local and declares say by what is before a name that no other file can use it, or that it is not defined there.
	local    = regexp.MustCompile(`^static\b`)
	declares = regexp.MustCompile(`^(?:extern|typedef)\b|^(?:struct|union|enum)\s*$`)
	// member is a member of a structure, which may be named like a function.
	member = regexp.MustCompile(`(?:->|\.)\s*\w+`)
	word   = regexp.MustCompile(`\w+`)
)

// TestFilesOfC: in no folder do files of C need each other in a circle, by the functions and variables that they use.
func TestFilesOfC(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	folders := map[string]map[string]string{} // the text of each file
	for _, top := range []string{"benchmarks", "conformance", "internal", "ncclnet", "pkg"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, top), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".c" && filepath.Ext(path) != ".h" {
				return err
			}
			text, err := os.ReadFile(path)
			folder, name := filepath.Split(path)
			if folders[folder] == nil {
				folders[folder] = map[string]string{}
			}
			folders[folder][name] = string(text)
			return err
		}))
	}
	require.Contains(t, folders, filepath.Join(root, "ncclnet", "p2p")+"/")
	for folder, files := range folders {
		knot := largest(usesOfC(files))
		assert.LessOrEqual(t, len(knot), 1, "%s: files that need each other in a circle: %v", folder, knot)
	}
}

// usesOfC returns, for each file of a folder, the others that define a function or variable that it uses.
func usesOfC(files map[string]string) map[string][]string {
	definedIn, own := map[string]string{}, map[string]map[string]bool{}
	for name, text := range files {
		files[name], own[name] = notCode.ReplaceAllString(text, " "), map[string]bool{}
		for _, m := range defines.FindAllStringSubmatch(files[name], -1) { // what is before the name, and the name
			if declares.MatchString(m[1]) {
				continue
			}
			own[name][m[2]] = true
			if filepath.Ext(name) == ".h" || !local.MatchString(m[1]) {
				definedIn[m[2]] = name
			}
		}
	}
	arrows := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		text := files[name]
		if filepath.Ext(name) == ".h" {
			text = bodies(text) // a declaration uses nothing
		}
		for _, used := range word.FindAllString(member.ReplaceAllString(text, " "), -1) {
			if to, is := definedIn[used]; is && to != name && !own[name][used] && !slices.Contains(arrows[name], to) {
				arrows[name] = append(arrows[name], to)
			}
		}
	}
	return arrows
}

// bodies keeps what is in braces.
func bodies(text string) string {
	var kept strings.Builder
	depth := 0
	for _, r := range text {
		switch r {
		case '{':
			depth++
		case '}':
			depth--
		}
		if depth > 0 {
			kept.WriteRune(r)
		}
	}
	return kept.String()
}

// TestUsesOfC knows a use from a declaration, a local name and a member.
func TestUsesOfC(t *testing.T) {
	arrows := usesOfC(map[string]string{
		"a.h": "struct s;\nvoid b_do(struct s *s);\nextern int b_count;\n" +
			"static inline int a_twice(int x) { return 2 * x + b_count; }\n",
		"a.c": "#include \"b_do.h\"\n/* b_do(s) */\nstatic int add(int x)\n{\n\treturn a_twice(x);\n}\n",
		"b.c": "int b_count;\nstruct s *b_new(void)\n{\n\treturn 0;\n}\n" +
			"void b_do(struct s *s, int add)\n{\n\ts->c_end = add;\n}\n",
		"c.c": "const struct t c_table = {\n\t.make = b_new,\n};\nint c_end(int a,\n\t  int b)\n{\n\treturn 1;\n}\n",
	})
	assert.Equal(t, map[string][]string{"a.h": {"b.c"}, "a.c": {"a.h"}, "c.c": {"b.c"}}, arrows)
}
