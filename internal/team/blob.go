package team

import (
	"cmp"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/torch-mcast/torch-mcast/internal/transport/netdev"
)

// Blob is what a rank tells the others before any connection exists.
type Blob struct {
	Version  int    `json:"v"`
	Commit   string `json:"c,omitempty"` // of the build, for people; empty: unknown
	Rank     int    `json:"r"`
	Size     int    `json:"n"`
	Host     string `json:"h"`           // netdev.HostID
	User     string `json:"u,omitempty"` // netdev.UserID
	Name     string `json:"hn,omitempty"`
	Address  string `json:"a"`           // where other hosts reach it over IPv4; empty: they do not
	Address6 string `json:"6,omitempty"` // over IPv6
	Port     int    `json:"p"`           // of its listener
	Key      string `json:"k"`           // that its listener wants to hear
	Job      string `json:"j"`           // drawn by every rank, rank 0's counts
	Secret   string `json:"e,omitempty"` // the name of the identity, see identity.Identity.Name
	RcvBuf   int    `json:"b"`           // largest receive buffer of a socket
	Switches int    `json:"x"`           // aggregation nodes that it knows
	Settings string `json:"s,omitempty"` // the settings that must agree and differ from the defaults
	Topology string `json:"t,omitempty"` // where its host is in the network
	// Rails are the addresses of each further interface that is asked for.
	Rails [][]netip.Addr `json:"l,omitempty"`
	Asked bool           `json:"i,omitempty"` // for an interface
	// Devices says that the host has an RDMA device that auto may take.
	Devices bool `json:"d,omitempty"`
	// Candidates are all its addresses where no interface is asked for.
	Candidates []netdev.Candidate `json:"w,omitempty"`
}

// build says what a rank was built from, as far as that is known.
func (b *Blob) build() string {
	commit := cmp.Or(ClipCommit(b.Commit), "an unknown commit")
	number := strconv.Itoa(b.Version)
	if b.Version >= 100 {
		number = fmt.Sprintf("%d.%d", b.Version/100, b.Version%100)
	}
	return fmt.Sprintf("version %s of the protocol (%s)", number, commit)
}

// ClipCommit bounds what another rank calls its commit: git describe writes less.
func ClipCommit(commit string) string { return commit[:min(len(commit), 64)] }

// Offer has a blob tell addresses: of each version one at most, as netdev.Addresses returns them.
func (b *Blob) Offer(addrs []netip.Addr) {
	for _, a := range addrs {
		if a.Is4() {
			b.Address = a.String()
		} else {
			b.Address6 = a.String()
		}
	}
}

// offers reads what Offer wrote.
func (b *Blob) offers() (o offers, err error) {
	for _, f := range []struct {
		text string
		is4  bool
	}{{b.Address, true}, {b.Address6, false}} {
		if f.text == "" {
			continue
		}
		a, err := netip.ParseAddr(f.text)
		if err != nil || a.Is4() != f.is4 || a.Is4In6() {
			return o, Argument("blob of rank %d has the addresses %q and %q; want one of IPv4, one of IPv6, or both", b.Rank,
				b.Address, b.Address6)
		}
		o[reachOf(a)] = a
	}
	if o == (offers{}) {
		return o, Argument("blob of rank %d has no address; want one of IPv4, one of IPv6, or both", b.Rank)
	}
	return o, nil
}
