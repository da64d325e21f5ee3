package switchd

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork/node"
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
	op := collective.Op{Count: 10_000, Type: reduce.F32, Reduction: reduce.Sum}
	reduceScatter(t, 1, others, op)
	c := innetwork.StageConfig{
		Terms: innetwork.Terms{Ranks: 1, Stripes: 1, Chunk: 8, Slots: 1}, Members: 1, Owner: []int{0},
	}
	c.Memory = make([]byte, innetwork.MemoryFor(&c))
	broken, err := node.New(c)
	require.NoError(t, err)
	broken.Connect([]node.Link{nil}, nil, false) // there is no such link
	n.workers[0].add(&stripe{job: jobs[0], node: broken})
	for _, r := range unlucky {
		require.ErrorContains(t, lost(t, r.Session), "a defect of the switch: runtime error: invalid memory address")
	}
	reduceScatter(t, 2, others, op)
}
