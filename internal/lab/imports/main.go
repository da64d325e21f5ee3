// Command imports draws how the packages of this module import each other, and finds what points upward: `make
// imports`. The wings, and their order from top to bottom, are declared in wings.txt. Tests may import any package, so
// their imports are not drawn.
//
//	imports [-list] [-at COMMIT -wings FILE]
package main

import (
	"bytes"
	_ "embed"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed wings.txt
var wingsHere string

func main() {
	at := flag.String("at", "", "draw this `commit` in place of the working tree")
	file := flag.String("wings", "", "`file` that declares the wings; default: the present ones")
	list := flag.Bool("list", false, "list every arrow")
	flag.Parse()
	h, err := read(*at, *file)
	if err != nil {
		fmt.Fprintln(os.Stderr, "imports:", err)
		os.Exit(1)
	}
	fmt.Print(h.draw(*list))
	if len(h.up) > 0 {
		os.Exit(1)
	}
}

// read is the house of a commit, or of the working tree, by the wings of a file, or of today.
func read(commit, file string) (*house, error) {
	declared, dir := wingsHere, "."
	if file != "" {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		declared = string(b)
	}
	if commit != "" {
		var err error
		if dir, err = os.MkdirTemp("", "imports"); err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir) //nolint:errcheck // nothing depends on it
		if err := extract(commit, dir); err != nil {
			return nil, err
		}
	}
	packages, err := load(dir)
	if err != nil {
		return nil, err
	}
	return newHouse(parseWings(declared), packages)
}

// extract writes the tree of a commit into dir.
func extract(commit, dir string) error {
	archive := filepath.Join(dir, ".archive.tar")
	if out, err := exec.Command("git", "archive", "--output", archive, commit).CombinedOutput(); err != nil {
		return fmt.Errorf("git archive %s: %w: %s", commit, err, out)
	}
	if out, err := exec.Command("tar", "-C", dir, "-xf", archive).CombinedOutput(); err != nil {
		return fmt.Errorf("tar: %w: %s", err, out)
	}
	return os.Remove(archive)
}

// load asks go for the packages below dir and for their imports from the same module. All paths are relative to the
// module.
func load(dir string) (map[string][]string, error) {
	list := exec.Command("go", "list", "-f", `{{.Module.Path}} {{.ImportPath}} {{join .Imports " "}}`, "./...")
	list.Dir = dir
	var stderr bytes.Buffer
	list.Stderr = &stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, &stderr)
	}
	packages := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		module := words[0] + "/"
		name := strings.TrimPrefix(words[1], module)
		packages[name] = nil
		for _, imported := range words[2:] {
			if relative, ours := strings.CutPrefix(imported, module); ours {
				packages[name] = append(packages[name], relative)
			}
		}
	}
	return packages, nil
}
