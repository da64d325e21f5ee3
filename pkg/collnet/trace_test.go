package collnet_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/pkg/collnet"
)

// TestWriteTrace: WriteTrace writes a valid trace, also in a process that has no group.
func TestWriteTrace(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, collnet.WriteTrace(&b))
	var document map[string]any
	require.NoError(t, json.Unmarshal(b.Bytes(), &document))
	require.Contains(t, document, "traceEvents")
	require.Positive(t, document["baseTimeNanoseconds"])
}
