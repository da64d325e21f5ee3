package collnet

import (
	"log/slog"
	"os"
)

// logger writes to standard error what MCAST_LOG asks for.
func logger(level slog.Level, rank int) *slog.Logger {
	h := slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})
	return slog.New(h).With("lib", "mcast", "rank", rank)
}

// logJoined tells once what was chosen and why. What the machine lacks is a
// warning only where it costs something that the user could mend.
func (g *Group) logJoined() {
	i := g.Info()
	g.log.Info("joined", "size", i.Size, "fabric", i.Fabric, "reason", i.Reason, "interface", i.Interface,
		"chunk", i.ChunkBytes, "window", i.WindowBytes, "simd", i.SIMD, "reduce_scatter", i.ReduceScatter, "reduce_scatter_reason", i.ReduceScatterReason)
	for _, note := range i.Notes {
		g.log.Warn(note)
	}
}
