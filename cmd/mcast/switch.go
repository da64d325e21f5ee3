package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/torch-mcast/torch-mcast/internal/cli"
	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/httpd"
	"github.com/torch-mcast/torch-mcast/internal/session"
	"github.com/torch-mcast/torch-mcast/internal/switchd"
	"github.com/torch-mcast/torch-mcast/internal/transport/identity"
	"github.com/torch-mcast/torch-mcast/internal/transport/netdev"
)

// switchCommand is the command line of `mcast switch`.
type switchCommand struct {
	Config       kong.ConfigFlag `placeholder:"FILE" help:"JSON object with values for these flags, such as {\"parent\": \"10.0.0.1:7470\"}."`
	Bind         string          `default:"127.0.0.1:7470" placeholder:"host:port" help:"Where members join; port 0 takes a free one. Default: ${default}, for this host alone."`
	Workers      int             `placeholder:"n" help:"Goroutines that move data. Default: half of the cores, 1 to 16."`
	Memory       cli.Bytes       `default:"1GiB" placeholder:"size" help:"Slot memory of all jobs. Default: ${default}."`
	JobMemory    cli.Bytes       `placeholder:"size" help:"Slot memory of one job. Default: a sixteenth of --memory."`
	Rate         cli.Rate        `default:"40gbit" placeholder:"rate" help:"Of a member's link, such as 40gbit; it says how large windows are. Default: ${default}."`
	Parent       string          `placeholder:"host:port" help:"The switch above this one in a tree."`
	DataPorts    portRange       `placeholder:"first-last" help:"UDP ports for data, for firewalls. Default: any."`
	Secrets      string          `placeholder:"FILE" help:"Admit only members that prove one of these secrets: one a line, with an optional name before it. Default: MCAST_SECRET or MCAST_SECRET_FILE, if set."`
	Jobs         int             `default:"256" placeholder:"n" help:"Communicators at a time. Default: ${default}."`
	Members      int             `default:"4096" placeholder:"n" help:"Connections of members of all jobs. Default: ${default}."`
	JoinTimeout  time.Duration   `default:"30s" placeholder:"d" help:"How long a job waits for the last of its ranks. Default: ${default}."`
	DrainTimeout time.Duration   `default:"30s" placeholder:"d" help:"After SIGTERM: how long members have to leave. Default: ${default}."`
	HTTP         string          `name:"http" placeholder:"host:port" help:"Serve /metrics for Prometheus and /healthz here; with a secret, by HTTPS, and /metrics only for clients that prove MCAST_SECRET (mcast secret --metrics). Default: nowhere."`
	JSON         bool            `name:"json" help:"Log JSON objects instead of text."`
}

// Run is the switch until a signal ends it.
func (c *switchCommand) Run() error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if c.JSON {
		log = slog.New(slog.NewJSONHandler(os.Stderr, nil))
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if err := c.check(); err != nil {
		return err
	}
	var own string
	if c.Secrets == "" || c.HTTP != "" { // else a secret in the environment is for other programs
		var err error
		if own, err = config.SecretOf(os.LookupEnv); err != nil {
			return err
		}
	}
	secrets, err := c.secrets(own)
	if err != nil {
		return err
	}
	if len(secrets) == 0 && !loopback(c.Bind) {
		log.Warn("everybody who reaches this address may use the switch; see --secrets", "bind", c.Bind)
	}
	s, err := switchd.Start(switchd.Config{
		Bind: c.Bind, Workers: c.Workers, Memory: int64(c.Memory), JobMemory: int64(c.JobMemory), Rate: float64(c.Rate),
		Parent: c.Parent, FirstPort: c.DataPorts.first, LastPort: c.DataPorts.last, Secrets: secrets,
		Jobs: c.Jobs, Members: c.Members, JoinTimeout: c.JoinTimeout, Log: log, Elsewhere: netdev.Elsewhere,
	})
	if err != nil {
		return listenError("bind", err)
	}
	defer func() { _ = s.Close() }()
	if c.HTTP != "" {
		stop, err := serveHTTP("http", c.HTTP, s.Handler(), own, log)
		if err != nil {
			return err
		}
		defer stop()
	}
	fmt.Printf("listening on %v\n", s.Addr())
	notify(daemon.SdNotifyReady, log)
	<-signals
	notify(daemon.SdNotifyStopping, log)
	return c.drain(s, signals, log)
}

// notify tells systemd, if it is what started the switch, and asked for it by Type=notify.
func notify(state string, log *slog.Logger) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("systemd does not hear of this", "state", state, "error", err)
	}
}

// check looks at the flags.
func (c *switchCommand) check() error {
	for _, a := range []struct{ flag, address string }{{"bind", c.Bind}, {"parent", c.Parent}, {"http", c.HTTP}} {
		if a.address == "" && a.flag != "bind" {
			continue
		}
		if err := cli.CheckAddress(a.flag, a.address); err != nil {
			return err
		}
	}
	return c.checkAmounts()
}

// checkAmounts looks at numbers, times and sizes.
func (c *switchCommand) checkAmounts() error {
	if c.Rate == 0 {
		return config.Mistakef(`--rate=unlimited is not allowed: want the rate of a member's link, such as 40gbit`)
	}
	if c.Workers < 0 || c.Workers > switchd.MaxWorkers {
		return config.Mistakef("--workers=%d is not allowed: want 1 to %d, or 0 for half of the cores", c.Workers,
			switchd.MaxWorkers)
	}
	for _, n := range []struct {
		flag  string
		value int
	}{{"jobs", c.Jobs}, {"members", c.Members}} {
		if n.value < 1 {
			return config.Mistakef("--%s=%d is not allowed: want at least 1", n.flag, n.value)
		}
	}
	if c.JoinTimeout <= 0 {
		return config.Mistakef("--join-timeout=%v is not allowed: want a time above 0", c.JoinTimeout)
	}
	if c.DrainTimeout < 0 {
		return config.Mistakef("--drain-timeout=%v is not allowed: want 0 or more", c.DrainTimeout)
	}
	if c.JobMemory > c.Memory {
		return config.Mistakef("--job-memory=%s is more than --memory=%s: want at most as much",
			config.FormatBytes(int(c.JobMemory)), config.FormatBytes(int(c.Memory)))
	}
	job := c.JobMemory
	if job == 0 {
		job = c.Memory / 16
	}
	if least := cli.Bytes(256 << 10); min(job, c.Memory) < least {
		return config.Mistakef("--memory=%s leaves a job %s, which is too little for any: want --memory=4MiB or more, or "+
			"--job-memory=%s or more",
			config.FormatBytes(int(c.Memory)), config.FormatBytes(int(min(job, c.Memory))), config.FormatBytes(int(least)))
	}
	return nil
}

// drain lets the members leave; a second signal ends that, a third the process.
func (c *switchCommand) drain(s *switchd.Server, signals chan os.Signal, log *slog.Logger) error {
	log.Info("draining", "jobs", s.Stats().Jobs, "timeout", c.DrainTimeout.String())
	ctx, cancel := context.WithTimeout(context.Background(), c.DrainTimeout)
	defer cancel()
	defer signal.Stop(signals) // further signals have their default effect
	go func() {
		select {
		case <-signals:
			cancel()
		case <-ctx.Done():
		}
	}()
	err := s.Drain(ctx)
	if errors.Is(err, context.Canceled) {
		return errors.New("ended by a second signal before all members had left")
	}
	return err
}

// secrets reads --secrets; without it members prove the switch's own secret, if it has one. The own secret opens --http
// in either case: the pages there are about all tenants.
func (c *switchCommand) secrets(own string) (session.Secrets, error) {
	if c.Secrets == "" && own == "" {
		return nil, nil
	}
	if c.Secrets == "" {
		return session.Secrets{{Text: own}}, nil
	}
	if c.HTTP != "" && own == "" {
		return nil,
			config.Mistakef("--http with --secrets takes MCAST_SECRET or MCAST_SECRET_FILE, a secret of the switch's own: " +
				"clients that know it may read the metrics of all tenants")
	}
	file, err := os.Open(c.Secrets)
	if err != nil {
		return nil, fmt.Errorf("--secrets: %w", err)
	}
	defer func() { _ = file.Close() }()
	secrets, err := session.ReadSecrets(file)
	if err != nil {
		return nil, config.Mistakef("--secrets: %s: %w", c.Secrets, err)
	}
	return secrets, nil
}

func loopback(bind string) bool {
	host, _, err := net.SplitHostPort(bind)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// listenError adds the remedy to an error of a listener.
func listenError(flag string, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%w: `ss -ltnp` shows the program that listens there; --%s takes another port", err, flag)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%w: no interface here has that address; `ip addr` shows the addresses that --%s takes", err, flag)
	}
	return err
}

// serveHTTP serves who proves the secret, or everybody if there is none, until stop is called.
func serveHTTP(flag, at string, handler http.Handler, secret string, log *slog.Logger) (stop func(), err error) {
	pages, err := identity.NewPages(secret, identity.Turns())
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", at)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, listenError(flag, err))
	}
	if pages == nil && !loopback(at) {
		log.Warn("everybody who reaches this address may read the metrics; see MCAST_SECRET", flag, at)
	}
	log.Info("metrics", "url", fmt.Sprintf("%s://%v/metrics", httpd.Scheme(pages), ln.Addr()))
	return httpd.Serve(ln, handler, pages), nil
}

// portRange is a flag such as 7500-7599.
type portRange struct{ first, last uint16 }

// UnmarshalText reads it.
func (p *portRange) UnmarshalText(text []byte) error {
	first, last, _ := strings.Cut(string(text), "-")
	a, err := strconv.ParseUint(first, 10, 16)
	b, err2 := strconv.ParseUint(last, 10, 16)
	if err != nil || err2 != nil || a < 1 || b < a {
		return config.Mistakef("%q is no range of ports: want first-last, such as 7500-7599", text)
	}
	*p = portRange{uint16(a), uint16(b)}
	return nil
}
