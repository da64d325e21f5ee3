// Command prose counts how hard the documents and comments of a checkout are to read.
//
//	go run ./internal/lab/prose              a table of groups of documents, and of comments
//	go run ./internal/lab/prose FILE...      a row for each document, and what is over its limits
//	go run ./internal/lab/prose FOLDER...    the riddles in comments of its code
//
// CONTRIBUTING.md has the limits, and prose_test.go holds them.
package main

import (
	"fmt"
	"os"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "prose:", err)
		os.Exit(1)
	}
}

func run(files []string) error {
	if len(files) == 0 {
		fmt.Println(heading)
		return table(".")
	}
	for _, file := range files {
		if info, err := os.Stat(file); err == nil && info.IsDir() {
			if err := comments(file); err != nil {
				return err
			}
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		p := Read(text)
		fmt.Println(heading)
		p.row(file)
		for _, s := range p.Long() {
			fmt.Printf("        %d words: %s\n", s.Words, s.Text)
		}
		for _, r := range p.Riddles {
			fmt.Printf("        riddle: %s\n", r)
		}
		for _, row := range p.Torn {
			fmt.Printf("        in no table: %.100s\n", row)
		}
		for _, line := range p.Wide {
			fmt.Printf("        line %d is wider than %d columns\n", line, Columns)
		}
	}
	return nil
}

const heading = "  words  sentences  median  over 35  riddles/1000  wide lines"

// comments prints the riddles in comments below a folder.
func comments(folder string) error {
	for _, language := range Languages {
		c, err := language.count(folder)
		if err != nil {
			return err
		}
		for _, r := range c.Riddles {
			fmt.Println(r)
		}
		fmt.Printf("%d lines of comments, %.1f in a thousand with a riddle: %s\n", c.Lines, c.Rate(), language.Name)
	}
	return nil
}

func table(root string) error {
	for _, group := range Groups {
		sum, err := group.read(root)
		if err != nil {
			return err
		}
		sum.row(group.Name)
	}
	texts, err := Texts(root)
	if err != nil {
		return err
	}
	texts.Words = texts.said
	texts.row("what programs print")
	for _, language := range Languages {
		c, err := language.count(root)
		if err != nil {
			return err
		}
		fmt.Printf("%7d lines of comments, %.1f in a thousand with a riddle  %s\n", c.Lines, c.Rate(), language.Name)
	}
	return nil
}

func (p *Prose) row(name string) {
	fmt.Printf("%7d  %9d  %6d  %6.1f%%  %12.1f  %10d  %s\n",
		p.Words, len(p.Sentences), p.Median(), 100*p.LongShare(), p.RiddleRate(), len(p.Wide), name)
}
