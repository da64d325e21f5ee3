package group

import (
	"log/slog"
	"os"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/monitor"
)

// logger returns where the group logs: the caller's, or standard error, from MCAST_LOG on.
func (o *Options) logger() *slog.Logger {
	l := o.Logger
	if l == nil {
		l = Logger(&o.Settings)
	}
	return l.With("rank", o.Rank)
}

// Logger returns what logs to standard error, from MCAST_LOG on.
func Logger(s *config.Settings) *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: s.Log})).With("lib", "mcast")
}

// logJoined tells once what was chosen and why. What the machine lacks is a
// warning only where it costs something that the user could mend.
func (g *Group) logJoined(took time.Duration) {
	i := g.monitor.Info()
	g.log.Info("joined", "took", took.Round(time.Microsecond), "size", i.Size, "fabric", i.Fabric, "reason", i.Reason,
		"interface", i.Interface,
		"chunk", i.ChunkBytes, "window", i.WindowBytes, "simd", i.SIMD, "allgather", i.Allgather, "allgather_reason",
		i.AllgatherReason,
		"reduce_scatter", i.ReduceScatter, "reduce_scatter_reason", i.ReduceScatterReason, "datagrams", g.sealed(&i))
	for _, note := range i.Notes {
		g.log.Warn(note)
	}
	if g.plan.Settings.Encrypt && i.Fabric == "shm" {
		g.log.Info("MCAST_ENCRYPT=1 has nothing to encrypt: ranks talk by shared memory, which is not encrypted " +
			"(SECURITY.md)")
	}
	if !g.plan.OneHost && g.plan.Settings.Secret == "" {
		g.log.Info("anybody on the network may pass for a rank, since MCAST_SECRET is not set (see `mcast secret`, " +
			"SECURITY.md)")
	}
}

// sealed says how multicast data are protected from being read, forged or damaged.
func (g *Group) sealed(i *monitor.Info) string {
	switch s := &g.plan.Settings; {
	case i.Fabric == "shm":
		return "none"
	case s.Encrypt:
		return "encrypted"
	case s.Secret != "":
		return "tagged"
	case s.Checksum != "off":
		return "with checksums"
	}
	return "plain"
}
