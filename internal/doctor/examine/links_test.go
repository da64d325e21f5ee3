//go:build links

package examine

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/doctor"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

var record = flag.Bool("record", false, "write what is seen of patients to testdata")

// patient is a host made of a network namespace.
type patient struct {
	*systest.Namespace
	env    []string
	listen time.Duration
}

// cabled returns a healthy one, cabled to another namespace: its interface is v0, at 10.9.0.1.
func cabled(t *testing.T) (p *patient, other *systest.Namespace) {
	t.Helper()
	ns := systest.Cable(t, 1500)
	return &patient{Namespace: ns[0], env: []string{"GLOO_SOCKET_IFNAME=v0"}}, ns[1]
}

// apart returns one without a cable.
func apart(t *testing.T) *patient {
	t.Helper()
	return &patient{Namespace: systest.NewNamespace(t)}
}

// seen is what was seen of patients.
var seen []sighting

// examine gathers the facts in the namespace.
func (p *patient) examine(t *testing.T) doctor.Facts {
	t.Helper()
	var f doctor.Facts
	p.Do(func() { f = Host(t.Context(), Options{Environ: p.env, Listen: p.listen}) })
	seen = append(seen, sighting{t.Name(), f})
	return f
}

// shell runs a remedy in the namespace.
func (p *patient) shell(t *testing.T, remedy string) {
	t.Helper()
	var out []byte
	var err error
	command := exec.Command("sh", "-c", strings.TrimPrefix(remedy, "sudo "))
	p.Do(func() { out, err = command.CombinedOutput() })
	require.NoError(t, err, "%s: %s", remedy, out)
}

// has reports whether a program is there.
func has(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}

func TestMain(m *testing.M) {
	code := m.Run()
	if *record && code == 0 {
		if err := write(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// write writes what was seen.
func write() error {
	file, err := os.Create(sightings)
	if err != nil {
		return err
	}
	z, err := gzip.NewWriterLevel(file, gzip.BestCompression)
	if err != nil {
		return err
	}
	for _, s := range seen {
		err = errors.Join(err, json.NewEncoder(z).Encode(s))
	}
	return errors.Join(err, z.Close(), file.Close())
}
