package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"

	"github.com/alecthomas/kong"

	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/version"
)

// Common are the commands and flags that every program has.
type Common struct {
	Version    versionCommand    `cmd:"" help:"Print the version."`
	Completion completionCommand `cmd:"" help:"Print a script by which a shell completes command lines."`
	Complete   completeCommand   `cmd:"" hidden:""`

	VersionFlag kong.VersionFlag `name:"version" help:"Print the version."`
	Man         manualFlag       `hidden:"" help:"Print the manual page."` // scripts/release asks for it
}

// versionCommand prints what this program is.
type versionCommand struct {
	JSON bool `name:"json" help:"Print a JSON object."`
}

// VersionReport is what `mcast version --json` prints: docs/reference/commands.md.
type VersionReport struct {
	Version string `json:"version"`
	Commit  string `json:"commit"` // empty: unknown
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
	Sums    string `json:"sums"` // the instructions that it sums with
}

// NewVersionReport returns the report of this process.
func NewVersionReport() VersionReport {
	return VersionReport{version.String(), version.Commit(), runtime.Version(), runtime.GOOS, runtime.GOARCH,
		reduce.Active().String()}
}

// Run prints the version, and the commit, compiler and sums of this build.
func (c versionCommand) Run(app *kong.Kong) error {
	if c.JSON {
		return json.NewEncoder(os.Stdout).Encode(NewVersionReport())
	}
	_, err := fmt.Println(app.Model.Name, version.Long(reduce.Active()))
	return err
}
