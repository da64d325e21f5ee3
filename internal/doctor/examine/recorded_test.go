//go:build !links

package examine

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/doctor"
)

// patient is one that was seen before. `go test -tags links ./internal/doctor/examine -args -record`, as root,
// sees all anew.
type patient struct {
	nowhere
	env    []string
	listen time.Duration
	seen   []doctor.Facts // that are to come
}

// cabled returns the patient of this test.
func cabled(t *testing.T) (*patient, nowhere) {
	t.Helper()
	return apart(t), nowhere{}
}

func apart(t *testing.T) *patient {
	t.Helper()
	file, err := os.Open(sightings)
	require.NoError(t, err)
	defer file.Close()
	text, err := gzip.NewReader(file)
	require.NoError(t, err)
	p := &patient{}
	for d := json.NewDecoder(text); ; {
		var s sighting
		err := d.Decode(&s)
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		if s.Test == t.Name() {
			p.seen = append(p.seen, s.Facts)
		}
	}
	t.Cleanup(func() { require.Empty(t, p.seen, "the test has looked more often when it was recorded") })
	return p
}

// examine returns what was seen next.
func (p *patient) examine(t *testing.T) (f doctor.Facts) {
	t.Helper()
	require.NotEmpty(t, p.seen, "the test looked less often when it was recorded")
	f, p.seen = p.seen[0], p.seen[1:]
	return f
}

func (*patient) shell(t *testing.T, remedy string) {
	t.Helper()
	require.NotEmpty(t, remedy)
}

// has reports what the machine had that recorded.
func has(string) bool { return true }

// nowhere is a place in which nothing is done.
type nowhere struct{}

func (nowhere) IP(testing.TB, string)           {}
func (nowhere) AwaitCarrier(testing.TB, string) {}
func (nowhere) DropMulticast(testing.TB)        {}
func (nowhere) DropLarger(testing.TB, int)      {}
func (nowhere) Heal(testing.TB)                 {}
