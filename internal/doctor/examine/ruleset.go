package examine

import (
	"cmp"
	"slices"

	"github.com/google/nftables"
)

// ruleset is what nftables holds.
type ruleset struct {
	chains []*nftables.Chain
	rules  map[chainName][]*nftables.Rule
	sets   map[setName]*set
}

type chainName struct {
	family      nftables.TableFamily
	table, name string
}

type setName chainName

// set is a set or map that rules look up.
type set struct {
	nftables.Set
	elements []nftables.SetElement // by key
}

// readRules reads the rules for packets of IPv4 to and from this host.
func readRules() (*ruleset, error) {
	c, err := nftables.New()
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.CloseLasting() }()
	r := &ruleset{rules: make(map[chainName][]*nftables.Rule), sets: make(map[setName]*set)}
	all, err := c.ListChains()
	if err != nil {
		return nil, err
	}
	for _, chain := range all {
		switch chain.Table.Family {
		case nftables.TableFamilyIPv4, nftables.TableFamilyINet, nftables.TableFamilyNetdev:
		default:
			continue
		}
		rules, err := c.GetRules(chain.Table, chain)
		if err != nil {
			return nil, err
		}
		r.chains = append(r.chains, chain)
		r.rules[nameOf(chain)] = rules
		if err := r.readSets(c, chain.Table); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(r.chains, func(a, b *nftables.Chain) int {
		return cmp.Compare(priority(a), priority(b))
	})
	return r, nil
}

// readSets reads the sets of a table, once.
func (r *ruleset) readSets(c *nftables.Conn, t *nftables.Table) error {
	for name := range r.sets {
		if name.family == t.Family && name.table == t.Name {
			return nil
		}
	}
	all, err := c.GetSets(t)
	if err != nil {
		return err
	}
	for _, s := range all {
		elements, err := c.GetSetElements(s)
		if err != nil {
			return err
		}
		slices.SortFunc(elements, func(a, b nftables.SetElement) int { return slices.Compare(a.Key, b.Key) })
		r.sets[setName{t.Family, t.Name, s.Name}] = &set{*s, elements}
	}
	return nil
}

func nameOf(c *nftables.Chain) chainName { return chainName{c.Table.Family, c.Table.Name, c.Name} }

func priority(c *nftables.Chain) int32 {
	if c.Priority == nil {
		return 0
	}
	return int32(*c.Priority)
}
