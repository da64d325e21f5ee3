package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/cli"
	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/doctor"
	"github.com/torch-mcast/torch-mcast/internal/live"
)

// bugreportCommand gathers what a report of a fault should have: docs/reference/commands.md.
type bugreportCommand struct {
	Out    string        `arg:"" optional:"" type:"path" placeholder:"FILE" help:"The archive to write, .tar.gz. Default: mcast-bugreport-HOST-TIME.tar.gz, here."`
	Listen time.Duration `default:"2s" placeholder:"TIME" help:"How long mcast doctor listens for an IGMP querier. Default: ${default}."`
}

// Bounds of the traces in a report.
const (
	mostTraces = 8
	mostBytes  = 16 << 20 // of one; a longer one is cut
)

// reportFile is a file of the archive.
type reportFile struct {
	name string
	text []byte
}

// Run gathers and writes. What cannot be had is said in its place.
func (c *bugreportCommand) Run() error {
	now := time.Now()
	host, _ := os.Hostname() // a host without a name has the empty one
	folder := fmt.Sprintf("mcast-bugreport-%s-%s", filepath.Base(cmp.Or(host, "host")), now.Format("20060102-150405"))
	if c.Out == "" {
		c.Out = folder + ".tar.gz"
	}
	out, err := os.OpenFile(c.Out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	files := slices.Concat(c.diagnosis(), about(), traces())
	hide := hidden(os.Environ())
	zipped := gzip.NewWriter(out)
	archive := tar.NewWriter(zipped)
	for _, f := range files {
		text := hide(f.text)
		err = errors.Join(err,
			archive.WriteHeader(&tar.Header{Name: folder + "/" + f.name, Mode: 0o600, Size: int64(len(text)), ModTime: now}))
		_, e := archive.Write(text)
		err = errors.Join(err, e)
	}
	if err = errors.Join(err, archive.Close(), zipped.Close(), out.Close()); err != nil {
		return errors.Join(err, os.Remove(c.Out))
	}
	fmt.Println(c.Out)
	for _, f := range files {
		fmt.Printf("  %s, %d bytes\n", f.name, len(f.text))
	}
	return nil
}

// diagnosis is what mcast doctor says of this host.
func (c *bugreportCommand) diagnosis() []reportFile {
	ctx, stop := cli.UntilSignal()
	defer stop()
	d := doctorCommand{NCCL: true, Listen: c.Listen}
	facts, err := d.gather(ctx)
	if err != nil {
		return []reportFile{{"doctor.txt", []byte(err.Error() + "\n")}}
	}
	report := doctor.NewReport(facts)
	var text, object bytes.Buffer
	if err := errors.Join(report.Write(&text), report.WriteJSON(&object)); err != nil {
		fmt.Fprintln(&text, err)
	}
	return []reportFile{{"doctor.txt", text.Bytes()}, {"doctor.json", object.Bytes()}}
}

// about is what runs here.
func about() []reportFile {
	var env, kernel bytes.Buffer
	if err := listVariables(&env, os.LookupEnv); err != nil {
		fmt.Fprintln(&env, err)
	}
	for _, path := range []string{"/proc/version", "/etc/os-release"} {
		text, err := os.ReadFile(path)
		if err != nil {
			text = []byte(err.Error() + "\n")
		}
		kernel.Write(text)
	}
	version, err := json.Marshal(cli.NewVersionReport())
	if err != nil {
		version = []byte(err.Error())
	}
	return []reportFile{{"version.json", append(version, '\n')}, {"env.txt", env.Bytes()}, {"kernel.txt", kernel.Bytes()}}
}

// traces are the newest of this user.
func traces() (all []reportFile) {
	s, err := config.FromEnviron()
	if err != nil && !errors.Is(err, config.ErrInStore) {
		return []reportFile{{"traces.txt", []byte("where traces are is not known: " + err.Error() + "\n")}}
	}
	directory := s.Trace
	switch directory {
	case "off":
		return nil
	case "auto":
		directory = live.Directory(os.Geteuid())
	}
	entries, _ := os.ReadDir(directory) // a directory that does not exist has no traces
	var found []os.FileInfo
	for _, e := range entries {
		if is, _ := filepath.Match("trace-*.json", e.Name()); !is { // the pattern is right
			continue
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			found = append(found, info)
		}
	}
	slices.SortFunc(found, func(a, b os.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	for _, info := range found[:min(mostTraces, len(found))] {
		text, err := readStart(filepath.Join(directory, info.Name()))
		if err != nil {
			text = []byte(err.Error() + "\n")
		}
		all = append(all, reportFile{"traces/" + info.Name(), text})
	}
	return all
}

// readStart reads the first mostBytes of a file.
func readStart(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, mostBytes))
}

// secretWords are in names of variables that hold secrets, of any program.
var secretWords = []string{"SECRET", "TOKEN", "PASSW", "KEY", "CREDENTIAL"}

// hidden returns what replaces all secrets of an environment in a text: values of variables that may hold one,
// misspelled ones too, and the secret in MCAST_SECRET_FILE. A file that was written before must not have them either.
func hidden(environ []string) func([]byte) []byte {
	// A shorter value of a variable that only sounds like a secret is none, as of TOKENIZERS_PARALLELISM=false, and is
	// everywhere in a report.
	const least = 8
	var secrets []string
	hide := func(secret string) {
		secrets = append(secrets, secret)
		if quoted, err := json.Marshal(secret); err == nil && string(quoted[1:len(quoted)-1]) != secret {
			secrets = append(secrets, string(quoted[1:len(quoted)-1]))
		}
	}
	if secret, err := config.SecretOf(os.LookupEnv); err == nil && secret != "" {
		hide(secret)
	}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		named := slices.ContainsFunc(secretWords, func(w string) bool { return strings.Contains(strings.ToUpper(name), w) })
		if len(value) >= least && (named && name != "MCAST_SECRET_FILE" || len(config.Unknown([]string{entry})) > 0) {
			hide(value)
		}
	}
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) }) // one may begin with another
	var pairs []string
	for _, secret := range secrets {
		pairs = append(pairs, secret, "(hidden)")
	}
	replacer := strings.NewReplacer(pairs...)
	return func(text []byte) []byte { return []byte(replacer.Replace(string(text))) }
}
