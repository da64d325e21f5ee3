package main

import (
	"os"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// bar is a progress bar on stderr, or nothing where that is no terminal.
type bar struct{ *progressbar.ProgressBar }

// newBar makes a bar without a length yet, and with a title.
func newBar(what string) bar {
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		return bar{}
	}
	b := progressbar.NewOptions(-1, progressbar.OptionSetWriter(os.Stderr), progressbar.OptionSetDescription(what),
		progressbar.OptionClearOnFinish(), progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(true))
	b.StartWithoutRender() // from now on it turns, and says how long, also where nothing is counted
	return bar{b}
}

// set shows how much is done.
func (b bar) set(done, total int) {
	if b.ProgressBar == nil {
		return
	}
	b.ChangeMax(total)
	_ = b.Set(done) // a bar that cannot be drawn is no reason to stop
}

// say changes what the bar is for.
func (b bar) say(what string) {
	if b.ProgressBar != nil {
		b.Describe(what)
		_ = b.RenderBlank()
	}
}

// end removes the bar.
func (b bar) end() {
	if b.ProgressBar != nil {
		_ = b.Finish()
	}
}
