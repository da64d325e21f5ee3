package cli

import (
	"fmt"
	"slices"

	"github.com/alecthomas/kong"
	mangokong "github.com/alecthomas/mango-kong"
	"github.com/muesli/roff"
)

// manualFlag prints the manual page, which the packages have; of hidden flags it knows nothing.
type manualFlag bool

// BeforeApply is called by kong once the flag is given.
func (manualFlag) BeforeApply(app *kong.Kong) error {
	forgetHidden(app.Model.Node)
	_, err := fmt.Fprint(app.Stdout, mangokong.NewManPage(1, app.Model).Build(roff.NewDocument()))
	if err == nil {
		app.Exit(0)
	}
	return err
}

func forgetHidden(n *kong.Node) {
	n.Flags = slices.DeleteFunc(n.Flags, func(f *kong.Flag) bool { return f.Hidden })
	for _, child := range n.Children {
		forgetHidden(child)
	}
}
