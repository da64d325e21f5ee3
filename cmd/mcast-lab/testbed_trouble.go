package main

import (
	"encoding/json"
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/cli"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed/troubles"
)

// testbedTroubleWorkerCommand is a rank that trains, which `mcast-lab testbed experiment explain` starts.
type testbedTroubleWorkerCommand struct {
	Plan string `arg:"" help:"A troubles.Plan, as JSON."`
}

// Run trains until it is ended.
func (c *testbedTroubleWorkerCommand) Run() error {
	var plan troubles.Plan
	if err := json.Unmarshal([]byte(c.Plan), &plan); err != nil {
		return fmt.Errorf("the plan of a training: %w", err)
	}
	ctx, stop := cli.UntilSignal()
	defer stop()
	return troubles.Train(ctx, plan)
}
