package watch

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// RanksPath is where `mcast metrics --listen` serves the ranks of its host, with what the kernel says of them.
const RanksPath = "/ranks"

const (
	port        = "9464"          // of `mcast metrics`, unless another is named
	fetchWithin = 5 * time.Second // what a host may take
	mostOfAHost = 64 << 20        // bytes
)

// ranksOf is what is served there.
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
		_ = json.NewEncoder(w).Encode(said) // whoever asked may be gone
	})
}

// Fetch asks hosts, by name or name:port, for their ranks, and says why others could not be seen.
func Fetch(ctx context.Context, hosts []string) (ranks []Rank, errs []error) {
	type outcome struct {
		ranksOf
		err error
	}
	outcomes := make([]chan outcome, len(hosts))
	for i, host := range hosts {
		outcomes[i] = make(chan outcome, 1)
		go func() {
			said, err := fetch(ctx, host)
			outcomes[i] <- outcome{said, err}
		}()
	}
	for i, host := range hosts {
		o := <-outcomes[i]
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

// client goes to hosts of the cluster, never by HTTP_PROXY: a proxy leads out of it.
var client = http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: fetchWithin}

// withPort adds the usual port to a name or address that has none; an IPv6 address may be in brackets.
func withPort(host string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	return net.JoinHostPort(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"), port)
}

func fetch(ctx context.Context, host string) (said ranksOf, err error) {
	host = withPort(host)
	ctx, cancel := context.WithTimeout(ctx, fetchWithin)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+RanksPath, nil)
	if err != nil {
		return said, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return said, err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return said, fmt.Errorf("%s: want 200 OK of `mcast metrics --listen` of this version", answer.Status)
	}
	return said, json.NewDecoder(io.LimitReader(answer.Body, mostOfAHost)).Decode(&said)
}
