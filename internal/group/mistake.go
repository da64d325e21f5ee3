package group

import "github.com/torch-mcast/torch-mcast/internal/team"

// ArgumentError says that a call was wrong in a way that this rank can see by itself. The group goes on.
type ArgumentError = team.ArgumentError

func argument(format string, args ...any) error { return team.Argument(format, args...) }
