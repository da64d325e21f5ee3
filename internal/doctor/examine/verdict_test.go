package examine

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/doctor"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// one chain of rules at the input hook, and others that it may jump to.
func input(policy nftables.ChainPolicy, chains map[string][][]expr.Any) *ruleset {
	r := &ruleset{rules: make(map[chainName][]*nftables.Rule), sets: make(map[setName]*set)}
	table := &nftables.Table{Name: "t", Family: nftables.TableFamilyINet}
	for name, rules := range chains {
		c := &nftables.Chain{Name: name, Table: table, Type: nftables.ChainTypeFilter}
		if name == "input" {
			c.Hooknum, c.Priority, c.Policy = nftables.ChainHookInput, nftables.ChainPriorityFilter, &policy
		}
		r.chains = append(r.chains, c)
		for _, exprs := range rules {
			r.rules[nameOf(c)] = append(
				r.rules[nameOf(c)],
				&nftables.Rule{Table: table, Chain: c, Exprs: exprs},
			)
		}
	}
	return r
}

func verdictOf(kind expr.VerdictKind, chain string) expr.Any {
	return &expr.Verdict{Kind: kind, Chain: chain}
}

// protocol matches a protocol over IPv4, and does something then.
func protocol(number byte, then ...expr.Any) []expr.Any {
	return append([]expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{number}}}, then...)
}

// arriving is UDP to a group.
func arriving() *packet {
	p := packet{link: "eth0", index: 2, length: 1500}.with("", true, unix.IPPROTO_UDP,
		netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("239.192.0.16"), 20000)
	return &p
}

func TestJudge(t *testing.T) {
	accept, drop := nftables.ChainPolicyAccept, nftables.ChainPolicyDrop
	unknown := &expr.Match{Name: "recent"}
	udp := func(then ...expr.Any) [][]expr.Any { return [][]expr.Any{protocol(unix.IPPROTO_UDP, then...)} }
	tcp := func(then ...expr.Any) [][]expr.Any { return [][]expr.Any{protocol(unix.IPPROTO_TCP, then...)} }
	jump, leap := verdictOf(expr.VerdictJump, "more"), verdictOf(expr.VerdictGoto, "more")
	ring, back := verdictOf(expr.VerdictJump, "input"), verdictOf(expr.VerdictReturn, "")
	acceptIt, dropIt := verdictOf(expr.VerdictAccept, ""), verdictOf(expr.VerdictDrop, "")
	type chains = map[string][][]expr.Any
	for name, c := range map[string]struct {
		policy nftables.ChainPolicy
		chains chains
		want   string
	}{
		"no rule":                   {accept, chains{"input": nil}, doctor.Passes},
		"policy":                    {drop, chains{"input": nil}, doctor.Dropped},
		"accepted":                  {drop, chains{"input": udp(acceptIt)}, doctor.Passes},
		"another's":                 {accept, chains{"input": tcp(dropIt)}, doctor.Passes},
		"counted and dropped":       {accept, chains{"input": udp(&expr.Counter{}, dropIt)}, doctor.Dropped},
		"rejected":                  {accept, chains{"input": udp(&expr.Reject{})}, doctor.Dropped},
		"by iptables":               {accept, chains{"input": {{&expr.Target{Name: "REJECT"}}}}, doctor.Dropped},
		"the first decides":         {drop, chains{"input": {{acceptIt}, {dropIt}}}, doctor.Passes},
		"perhaps accepted":          {drop, chains{"input": {{unknown, acceptIt}}}, doctor.Unclear},
		"perhaps dropped":           {accept, chains{"input": {{unknown, dropIt}}}, doctor.Unclear},
		"dropped either way":        {drop, chains{"input": {{unknown, dropIt}}}, doctor.Dropped},
		"not even perhaps":          {accept, chains{"input": tcp(unknown, dropIt)}, doctor.Passes},
		"jump":                      {accept, chains{"input": {{jump}}, "more": {{dropIt}}}, doctor.Dropped},
		"jump and back":             {drop, chains{"input": {{jump}, {acceptIt}}, "more": {{back}, {dropIt}}}, doctor.Passes},
		"goto, and never back":      {drop, chains{"input": {{leap}, {acceptIt}}, "more": nil}, doctor.Dropped},
		"chains that jump in rings": {accept, chains{"input": {{ring}}}, doctor.Unclear},
		"queued to a program":       {accept, chains{"input": {{&expr.Queue{}}}}, doctor.Unclear},
	} {
		t.Run(name, func(t *testing.T) {
			got, by := input(c.policy, c.chains).judge(arriving())
			assert.Equal(t, c.want, got)
			if got != doctor.Passes {
				assert.Equal(t, "inet t input", by)
			}
		})
	}
}

// TestHooks holds that chains at other hooks, of other devices or for addresses are not asked.
func TestHooks(t *testing.T) {
	inet := &nftables.Table{Family: nftables.TableFamilyINet}
	device := &nftables.Table{Family: nftables.TableFamilyNetdev}
	for name, c := range map[string]struct {
		chain nftables.Chain
		want  string
	}{
		"output":     {nftables.Chain{Hooknum: nftables.ChainHookOutput, Table: inet}, doctor.Passes},
		"prerouting": {nftables.Chain{Hooknum: nftables.ChainHookPrerouting, Table: inet}, doctor.Dropped},
		"nat": {nftables.Chain{Hooknum: nftables.ChainHookInput, Type: nftables.ChainTypeNAT, Table: inet},
			doctor.Passes},
		"a device's": {nftables.Chain{Hooknum: nftables.ChainHookIngress, Device: "eth0", Table: device}, doctor.Dropped},
		"another's":  {nftables.Chain{Hooknum: nftables.ChainHookIngress, Device: "eth1", Table: device}, doctor.Passes},
	} {
		t.Run(name, func(t *testing.T) {
			policy := nftables.ChainPolicyDrop
			c.chain.Policy = &policy
			got, _ := (&ruleset{chains: []*nftables.Chain{&c.chain}}).judge(arriving())
			assert.Equal(t, c.want, got)
		})
	}
}

// TestRulesAsPeopleWriteThem has nft turn text into rules, in a namespace, and compares what each
// kind of packet meets.
func TestRulesAsPeopleWriteThem(t *testing.T) {
	nft, err := exec.LookPath("nft")
	if err != nil {
		t.Skip("nft is not installed")
	}
	p := systest.Cable(t, 1500)[0]
	const host = "ct state established,related accept; iifname lo accept; tcp dport 22 accept; "
	for name, c := range map[string]struct {
		rules string
		udp   string
		tcp   string
	}{
		"a host's": {"policy drop; " + host, doctor.Dropped, doctor.Dropped},
		"with ours": {"policy drop; " + host + "ip daddr 239.192.0.0/14 udp dport 10000-29999 accept", doctor.Passes,
			doctor.Dropped},
		"an address less": {"policy drop; ip daddr 239.193.0.0/16 accept", doctor.Dropped, doctor.Dropped},
		"a set":           {"policy accept; udp dport { 53, 20000 } drop", doctor.Dropped, doctor.Passes},
		"not in a set":    {"policy accept; udp dport != { 53, 20000 } drop", doctor.Passes, doctor.Passes},
		"a set of ranges": {"policy accept; udp dport { 53, 10000-29999 } drop; tcp dport { 1-1023, 50000-60000 } drop",
			doctor.Dropped, doctor.Passes},
		"a map": {"policy drop; meta l4proto vmap { tcp : accept, icmp : accept }", doctor.Dropped,
			doctor.Passes},
		"states by a map": {"policy drop; ct state vmap { established : accept, invalid : drop, new : accept }",
			doctor.Passes, doctor.Passes},
		"a map to a chain": {"policy accept; meta l4proto vmap { udp : jump more }", doctor.Dropped, doctor.Passes},
		"a map of two": {"policy drop; ip saddr . tcp dport vmap { 10.9.0.0 . 40000 : accept }", doctor.Dropped,
			doctor.Unclear},
		"kinds of packets":   {"policy accept; meta pkttype multicast drop", doctor.Dropped, doctor.Passes},
		"kinds of addresses": {"policy accept; fib daddr type multicast drop", doctor.Dropped, doctor.Passes},
		"large ones":         {"policy accept; meta length > 1400 drop", doctor.Dropped, doctor.Passes},
		"small ones":         {"policy accept; meta length 0-64 drop", doctor.Passes, doctor.Dropped},
		"rejected":           {"policy accept; ip saddr 10.9.0.0/24 reject", doctor.Dropped, doctor.Dropped},
		"another interface":  {"policy accept; iifname \"eth*\" drop; iifname != \"v*\" drop", doctor.Passes, doctor.Passes},
		"by its number":      {"policy accept; iif v0 drop", doctor.Dropped, doctor.Dropped},
		"at a rate":          {"policy drop; limit rate 10/second accept", doctor.Unclear, doctor.Unclear},
		"of a user's mark":   {"policy drop; meta mark 7 accept", doctor.Unclear, doctor.Unclear},
	} {
		t.Run(name, func(t *testing.T) {
			p.Heal(t)
			command := exec.Command(nft, "-f", "-")
			command.Stdin = strings.NewReader(
				"table inet filter {\nchain more { udp dport 20000 drop; }\nchain input { type filter hook input priority 0; " +
					c.rules + "\n}\n}\n",
			)
			var out []byte
			var r *ruleset
			e := examination{
				Facts: doctor.Facts{
					Chosen: doctor.Choice{Name: "v0", Address: "10.9.0.1"},
					Links:  []doctor.Link{{Name: "v0", MTU: 1500}},
				},
			}
			var packets []packet
			p.Do(func() {
				if out, err = command.CombinedOutput(); err != nil {
					return
				}
				packets = e.packets(netip.MustParseAddr("10.9.0.1"))
				r, err = readRules()
			})
			require.NoError(t, err, "%s", out)
			udp, _ := r.judge(&packets[0])
			tcp, _ := r.judge(&packets[2])
			assert.Equal(t, c.udp, udp, "UDP to a group")
			assert.Equal(t, c.tcp, tcp, "TCP")
			sent, _ := r.judge(&packets[1])
			assert.Equal(t, doctor.Passes, sent)
		})
	}
}

// TestRulesThatSpareThisHost: self-tests do not meet the rules that others meet. Most firewalls accept what comes by
// lo, and the socket that listens for queries is in front of all rules.
func TestRulesThatSpareThisHost(t *testing.T) {
	nft, err := exec.LookPath("nft")
	if err != nil {
		t.Skip("nft is not installed")
	}
	p := systest.Cable(t, 1500)[0]
	command := exec.Command(nft, `table inet filter { chain input { type filter hook input priority 0; policy drop;
		ct state established,related accept; iifname lo accept; ip saddr 10.9.0.1 accept; }; }`)
	var out []byte
	var f doctor.Facts
	p.Do(func() {
		out, err = command.CombinedOutput()
		f = Host(t.Context(), Options{})
	})
	require.NoError(t, err, "%s", out)
	for _, test := range f.Tests {
		assert.Empty(t, test.Error, test.Name)
	}
	dropped := make(map[string]bool)
	for _, path := range f.Firewall.Paths {
		dropped[path.What] = path.Verdict == doctor.Dropped && path.By == "inet filter input"
	}
	for _, what := range []string{"UDP to 239.192.0.16 port 20000 that arrives", "TCP from other ranks", "IGMP queries"} {
		assert.True(t, dropped[what], what)
	}
}
