package diagnosis

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/doctor"
)

// recording is what doctors measured while a case's fault was there, an object a line of the file.
type recording struct {
	Case   string
	Host   int // the host that had the fault
	Hosts  []doctor.Facts
	Matrix doctor.Matrix
	Silent []doctor.Finding
}

const recordings = "testdata/recorded.ndjson.gz"

// recorded returns what was recorded, by the names of cases.
func recorded(t *testing.T) map[string]recording {
	t.Helper()
	file, err := os.Open(recordings)
	require.NoError(t, err)
	defer file.Close()
	text, err := gzip.NewReader(file)
	require.NoError(t, err)
	all := map[string]recording{}
	for d := json.NewDecoder(text); ; {
		var r recording
		err := d.Decode(&r)
		if err == io.EOF {
			return all
		}
		require.NoError(t, err)
		all[r.Case] = r
	}
}
