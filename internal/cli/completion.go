package cli

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// completionCommand prints the script of a shell, which asks completeCommand: docs/reference/commands.md.
type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// completionScripts hand over the words before the cursor; NAME is the program's. bash cuts words at =, too.
var completionScripts = map[string]string{
	"bash": `_NAME() {
    local IFS=$'\n'
    COMPREPLY=($("${COMP_WORDS[0]}" complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _NAME NAME
`,
	"zsh": `#compdef NAME
_NAME() {
    local -a found
    found=("${(@f)$("${words[1]}" complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    [[ -n "${found[1]}" ]] && compadd -a found || _files
}
if [[ "${funcstack[1]}" == _NAME ]]; then _NAME; else compdef _NAME NAME; fi
`,
	"fish": `complete -c NAME -a '(set -l words (commandline -opc) (commandline -ct); $words[1] complete -- $words[2..] 2>/dev/null)'
`,
}

// Run prints it.
func (c *completionCommand) Run(app *kong.Kong) error {
	_, err := fmt.Print(strings.ReplaceAll(completionScripts[c.Shell], "NAME", app.Model.Name))
	return err
}

// completeCommand prints what the last of some words may become, a line each.
type completeCommand struct {
	Words []string `arg:"" optional:"" passthrough:""`
}

// Run prints it.
func (c *completeCommand) Run(app *kong.Kong) error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	for _, word := range completions(app.Model.Node, words) {
		if _, err := fmt.Fprintln(os.Stdout, word); err != nil {
			return err
		}
	}
	return nil
}

// completions returns what the last word may become.
func completions(at *kong.Node, words []string) (all []string) {
	words = slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == "=" })
	last := ""
	if len(words) > 0 {
		last, words = words[len(words)-1], words[:len(words)-1]
	}
	flags := slices.Clone(at.Flags)
	var pending *kong.Flag // that the next word is the value of
	arguments := 0
	for _, word := range words {
		switch {
		case pending != nil:
			pending = nil
		case word == "--":
			return nil // what follows is of another program
		case strings.HasPrefix(word, "-"):
			pending = flagBefore(flags, word)
		default:
			if child := childNamed(at, word); child != nil {
				at, arguments = child, 0
				flags = append(flags, child.Flags...)
			} else {
				arguments++
			}
		}
	}
	name, _, valued := strings.Cut(last, "=")
	switch {
	case pending != nil:
		all = pending.EnumSlice()
	case valued && strings.HasPrefix(name, "--"):
		for _, f := range flags {
			if "--"+f.Name == name {
				for _, v := range f.EnumSlice() {
					all = append(all, name+"="+v)
				}
			}
		}
	case strings.HasPrefix(last, "-"):
		for _, f := range flags {
			if !f.Hidden {
				all = append(all, "--"+f.Name)
			}
		}
	default:
		for _, child := range at.Children {
			if !child.Hidden {
				all = append(all, child.Name)
			}
		}
		if arguments < len(at.Positional) {
			all = append(all, at.Positional[arguments].EnumSlice()...)
		}
	}
	all = slices.DeleteFunc(all, func(w string) bool { return w == "" || !strings.HasPrefix(w, last) })
	slices.Sort(all)
	return slices.Compact(all)
}

// flagBefore returns the flag that wants the word after this one as its value.
func flagBefore(flags []*kong.Flag, word string) *kong.Flag {
	for _, f := range flags {
		if word == "--"+f.Name && !f.IsBool() {
			return f
		}
	}
	return nil
}

func childNamed(at *kong.Node, word string) *kong.Node {
	for _, child := range at.Children {
		if child.Name == word {
			return child
		}
	}
	return nil
}
