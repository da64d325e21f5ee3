package multicast

import "github.com/torch-mcast/torch-mcast/internal/protocol/collective"

// Time is a moment: how long after some fixed one. It must not go backwards.
type Time = collective.Time
