package bench

import (
	"context"
	"os"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// Ring is the unicast that multicast is compared with, in which each rank passes on to the next one. mcast-lab has it.
type Ring struct {
	// Join makes this process one of so many ranks, which find each other by meet.
	Join func(ctx context.Context, rank, ranks int, s *config.Settings, meet Meet) (Contender, error)
	// Check reports a reduction that it does not do.
	Check func(t reduce.Type, op reduce.Op) error
}

// Meet exchanges what ranks say of themselves before they join. It closes the endpoint if that fails.
type Meet func(ctx context.Context, e Endpoint) (blobs [][]byte, err error)

// ringAlgorithm is what rows call it.
const ringAlgorithm = "ring"

// Run has the ring run a collective: it starts the ranks, or is one of them.
func (r *Ring) Run(collective string, f *Flags) error {
	b, err := r.check(collective, f, os.LookupEnv)
	if err != nil {
		return err
	}
	return b.run()
}

// check reads the command line and the variables of a launcher.
func (r *Ring) check(collective string, f *Flags, lookup func(string) (string, bool)) (*bench, error) {
	settings, err := config.Load(lookup, nil)
	if err != nil {
		return nil, err
	}
	if err := settings.Check(); err != nil {
		return nil, err
	}
	b := &bench{collective: collective, ring: r, settings: settings}
	if err := f.check(b, lookup); err != nil {
		return nil, err
	}
	if b.reduces() {
		if err := r.Check(b.dtype, b.op); err != nil {
			return nil, config.Mistake{Err: err}
		}
	}
	return b, nil
}
