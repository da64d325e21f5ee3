package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/nccl/check"
	"github.com/torch-mcast/torch-mcast/internal/transport/identity"
)

// Options say how to look.
type Options struct {
	Environ []string       // as os.Environ returns it
	Listen  time.Duration  // for an IGMP querier; 0: not at all
	NCCL    *check.Options // what `mcast nccl check` is asked; nil: nothing
	Brief   bool           // look at no more than which interface the library takes
	// Root is a folder with proc and sys; its files replace those of this host. Empty: there is none.
	// Tests use it for faults that they cannot make on the host itself.
	Root string
}

// gatherer is one examination of a host. It examines the network namespace of the calling thread, so it starts no
// goroutine that opens sockets.
type gatherer struct {
	Options
	Facts
	settings config.Settings
	proc     procfs.FS
	self     procfs.Proc // zero without /proc
	root     fs.FS
}

// Gather examines this host. The facts also list the things that it cannot see.
func Gather(ctx context.Context, o Options) Facts {
	g := &gatherer{Options: o, root: os.DirFS("/")}
	if o.Root != "" {
		g.root = overlay{os.DirFS(o.Root), g.root}
	}
	g.Host, _ = os.Hostname() // a host without a name has the empty one
	var err error
	if g.proc, err = procfs.NewDefaultFS(); err == nil {
		g.self, err = g.proc.Self()
	}
	if err != nil {
		g.unseen("settings of the kernel and limits of the process", err.Error(), "mount /proc")
	}
	g.variables()
	if o.Brief {
		g.choose()
		return g.Facts
	}
	g.kernel()
	g.syscalls()
	g.links()
	g.choose()
	g.routes()
	g.sockets()
	g.igmp(ctx)
	g.firewall()
	g.resources()
	g.devices()
	g.nccl(ctx)
	g.tests()
	return g.Facts
}

// overlay has the files of one file system before those of another.
type overlay struct{ first, then fs.FS }

// Open implements fs.FS.
func (o overlay) Open(name string) (fs.File, error) {
	f, err := o.first.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return o.then.Open(name)
	}
	return f, err
}

// ReadFile implements fs.ReadFileFS: files of /proc tell no size, and some all at the first read or
// nothing.
func (o overlay) ReadFile(name string) ([]byte, error) {
	b, err := fs.ReadFile(o.first, name)
	if errors.Is(err, fs.ErrNotExist) {
		return fs.ReadFile(o.then, name)
	}
	return b, err
}

// unseen takes down what cannot be looked at.
func (g *gatherer) unseen(what, why, remedy string) {
	g.Unseen = append(g.Unseen, Unseen{What: what, Why: why, Remedy: remedy})
}

// concerned are variables of others that say over which network they go, or how many cores there
// are.
var concerned = []string{
	"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "NCCL_NET", "NCCL_NET_PLUGIN", "GOMAXPROCS",
}

// variables reads the environment.
func (g *gatherer) variables() {
	s := Settings{Set: make(map[string]string), Unknown: config.Unknown(g.Environ)}
	secret := make(map[string]bool)
	for _, v := range config.Variables() {
		secret[v.Name] = v.Secret
	}
	all := make(map[string]string)
	for _, entry := range g.Environ {
		name, value, _ := strings.Cut(entry, "=")
		all[name] = value
		switch {
		case value == "" || !strings.HasPrefix(name, "MCAST_") && !slices.Contains(concerned, name):
		case secret[name] || len(config.Unknown([]string{entry})) > 0: // a name that is misspelled may be a secret's
			s.Set[name] = "(set)"
		default:
			s.Set[name] = value
		}
	}
	var err error
	g.settings, err = config.Load(func(name string) (string, bool) {
		value, ok := all[name]
		return value, ok
	}, nil)
	switch {
	case errors.Is(err, config.ErrInStore):
		s.Secret = config.InStore
	case err != nil:
		s.Bad = strings.ReplaceAll(err.Error(), "\n", "; ")
		g.settings = config.Default()
		g.settings.Interface = all["MCAST_IFACE"]
	default:
		if s.Secret, err = digest(g.settings.Secret); err != nil {
			s.Bad = err.Error()
		}
	}
	g.Settings = s
}

// digest returns what tells a secret apart from others, and does not give it away.
func digest(secret string) (string, error) {
	id, err := identity.New(secret)
	if err != nil {
		return "", err
	}
	return id.Name()
}

// nccl asks what NCCL would do.
func (g *gatherer) nccl(ctx context.Context) {
	if g.Options.NCCL == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	report, err := check.Run(ctx, *g.Options.NCCL)
	if err != nil {
		g.unseen("what NCCL does with the plugin", err.Error(), "mcast nccl check")
		return
	}
	g.Facts.NCCL = NCCL{Used: report.Used, Reason: report.Reason}
	if report.NCCL != nil {
		g.Facts.NCCL.Found, g.Facts.NCCL.Version = true, report.NCCL.Name
	}
	if report.Plugin != nil {
		g.Facts.NCCL.Plugin = report.Plugin.Path
	}
}

// sysctl returns a number of the kernel's settings, such as net/core/rmem_max; otherwise if there
// is none. A setting of a namespace is read in the namespace of the calling thread.
func (g *gatherer) sysctl(name string, otherwise int) int {
	words := strings.Fields(text(g.root, "proc/sys/"+name))
	if len(words) == 0 {
		return otherwise
	}
	n, err := strconv.Atoi(words[0])
	if err != nil {
		return otherwise
	}
	return n
}

// byteCount writes a size for people.
func byteCount(n int) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 10<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}
