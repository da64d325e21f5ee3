package watch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/torch-mcast/torch-mcast/internal/httpd"
	"github.com/torch-mcast/torch-mcast/internal/transport/identity"
)

// RanksPath is where `mcast metrics --listen` serves the ranks of its host, with what the kernel says of them.
const RanksPath = "/ranks"

const (
	port        = "9464"   // of `mcast metrics`, unless another is named
	mostAsked   = 64       // hosts at a time: with a secret each takes cryptography, within that time
	mostOfAHost = 64 << 20 // bytes
)

var fetchWithin = 5 * time.Second // what a host may take

// ranksOf is the answer at RanksPath.
type ranksOf struct {
	Ranks  []Rank   `json:"ranks"`
	Errors []string `json:"errors"` // why other processes of the host could not be seen
}

// Serve answers who asks for the ranks of this host.
func Serve(look func() ([]Rank, []error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		ranks, errs := look()
		said := ranksOf{Ranks: ranks, Errors: []string{}}
		for _, err := range errs {
			said.Errors = append(said.Errors, err.Error())
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(said) // the client may be gone
	})
}

// Remote asks hosts and switches over the network, as one who knows a secret, or none. Any goroutine may use it.
type Remote struct {
	client *http.Client
	scheme string
}

// NewRemote returns a Remote that knows a secret, or none if it is empty.
func NewRemote(secret string) (*Remote, error) {
	pages, err := identity.NewPages(secret, 1)
	if err != nil {
		return nil, err
	}
	return &Remote{httpd.Client(pages), httpd.Scheme(pages)}, nil
}

var (
	errNoSecret   = errors.New("it has MCAST_SECRET (or MCAST_SECRET_FILE) and this command has none; want the same")
	errOnlySecret = errors.New("this command has MCAST_SECRET (or MCAST_SECRET_FILE) and it has none; want the same")
)

// get asks for a page of a host:port. The answer's body is the caller's to close.
func (r *Remote) get(ctx context.Context, at, path string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.scheme+"://"+at+path, nil)
	if err != nil {
		return nil, err
	}
	answer, err := r.client.Do(request)
	if errors.Is(err, http.ErrSchemeMismatch) {
		return nil, errOnlySecret
	}
	if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
		return nil, fmt.Errorf("%s: %w", wrapped.URL, wrapped.Err)
	}
	if err == nil && answer.StatusCode == http.StatusUnauthorized {
		return nil, errors.Join(errNoSecret, answer.Body.Close())
	}
	return answer, err
}

// Fetch asks hosts, by name or name:port, for their ranks, and says why others could not be seen.
func (r *Remote) Fetch(ctx context.Context, hosts []string) (ranks []Rank, errs []error) {
	outcomes := make([]struct {
		ranksOf
		err error
	}, len(hosts))
	var all errgroup.Group
	all.SetLimit(mostAsked)
	for i, host := range hosts {
		all.Go(func() error {
			outcomes[i].ranksOf, outcomes[i].err = r.fetch(ctx, host)
			return nil
		})
	}
	_ = all.Wait()
	for i, host := range hosts {
		o := &outcomes[i]
		if o.err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", host, o.err))
		}
		for _, text := range o.Errors {
			errs = append(errs, fmt.Errorf("%s: %s", host, text))
		}
		for k := range o.Ranks {
			if o.Ranks[k].Host == "" {
				o.Ranks[k].Host = host
			}
		}
		ranks = append(ranks, o.Ranks...)
	}
	return ranks, errs
}

// withPort adds the usual port to a name or address that has none; an IPv6 address may be in brackets.
func withPort(host string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	return net.JoinHostPort(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"), port)
}

func (r *Remote) fetch(ctx context.Context, host string) (said ranksOf, err error) {
	ctx, cancel := context.WithTimeout(ctx, fetchWithin)
	defer cancel()
	answer, err := r.get(ctx, withPort(host), RanksPath)
	if err != nil {
		return said, err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return said, fmt.Errorf("%s: want 200 OK of `mcast metrics --listen` of this version", answer.Status)
	}
	return said, json.NewDecoder(io.LimitReader(answer.Body, mostOfAHost)).Decode(&said)
}
