package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
)

// products are the folders whose strings users read: messages, remedies and help.
var products = []string{"cmd", "internal", "ncclnet", "pkg"}

// Texts returns the prose in the strings of the product's Go code, of four words and more each. Most messages of Python
// and C come from there. Left out are tests, the laboratory but for its commands, and rows of generated tables.
func Texts(root string) (p Prose, err error) {
	lab := filepath.Join(root, "internal", "lab") + string(filepath.Separator)
	for _, folder := range products {
		err := sources(filepath.Join(root, folder), []string{".go"}, func(path string, source []byte) error {
			if strings.HasPrefix(path, lab) || strings.HasSuffix(path, "_test.go") {
				return nil
			}
			return p.literals(path, source)
		})
		if err != nil {
			return Prose{}, err
		}
	}
	return p, nil
}

// literals adds the strings of a Go file.
func (p *Prose) literals(path string, source []byte) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, source, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		literal, ok := n.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}
		if s, err := strconv.Unquote(literal.Value); err == nil && words(s) >= 4 {
			before := len(p.Riddles)
			p.paragraph(s)
			for i := before; i < len(p.Riddles); i++ {
				p.Riddles[i] = path + ": " + p.Riddles[i]
			}
		}
		return true
	})
	return nil
}
