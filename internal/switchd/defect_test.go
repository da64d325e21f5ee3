package switchd

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// TestADefectEndsOneJob: what panics while a worker serves a job ends that job, with words, and
// leaves the worker's other jobs alone.
func TestADefectEndsOneJob(t *testing.T) {
	n := start(t, Config{Workers: 1})
	unlucky := join(t, 2, at(n), nil)
	n.mu.Lock()
	jobs := n.all()
	n.mu.Unlock()
	require.Len(t, jobs, 1)
	others := join(t, 2, at(n), nil)
	op := innetwork.Op{Count: 10_000, Type: reduce.F32, Reduction: reduce.Sum}
	reduceScatter(t, 1, others, op)
	n.workers[0].add(&stripe{
		job: jobs[0], stage: new(innetwork.Stage),
		unsent: []innetwork.Out{{Member: 7}}, // there is no such member
	})
	for _, r := range unlucky {
		require.ErrorContains(t, lost(t, r.Session), "a defect of the switch: runtime error: index out of range")
	}
	reduceScatter(t, 2, others, op)
}
