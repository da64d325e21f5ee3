package systest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Namespace is a network namespace that lives as long as its thread. Sockets
// that are opened in Do stay in it.
type Namespace struct {
	thread int
	calls  chan func()
}

// NewNamespace returns one with nothing but a lo that is down. It skips the
// test without root, and in the inner loop, which is the same for everybody.
func NewNamespace(t testing.TB) *Namespace {
	t.Helper()
	needRoot(t)
	n := &Namespace{calls: make(chan func())}
	unshared := make(chan error)
	go func() {
		runtime.LockOSThread() // Never unlocked: the thread ends with the goroutine.
		n.thread = unix.Gettid()
		unshared <- unix.Unshare(unix.CLONE_NEWNET)
		for call := range n.calls {
			call()
		}
	}()
	require.NoError(t, <-unshared)
	t.Cleanup(func() { close(n.calls) })
	n.Do(func() { // a new namespace takes over what this host has
		for _, of := range []string{"all", "default"} {
			require.NoError(t, os.WriteFile("/proc/sys/net/ipv4/conf/"+of+"/rp_filter", []byte("0"), 0))
		}
	})
	return n
}

func needRoot(t testing.TB) {
	t.Helper()
	if testing.Short() || os.Geteuid() != 0 {
		t.Skip("network namespaces need root, and time: make test runs it")
	}
}

// Do runs f on the namespace's thread, one at a time.
func (n *Namespace) Do(f func()) {
	done := make(chan struct{})
	n.calls <- func() {
		defer close(done)
		f()
	}
	<-done
}

// IP runs the ip program in the namespace.
func (n *Namespace) IP(t testing.TB, args string) {
	t.Helper()
	var out []byte
	var err error
	n.Do(func() { out, err = exec.Command("ip", strings.Fields(args)...).CombinedOutput() }) // arguments are constants
	require.NoError(t, err, "ip %s: %s", args, out)
}

// Loop6 has lo carry multicast over IPv6, and every address of fd7f::/64: Linux does so by itself
// over IPv4 alone.
func (n *Namespace) Loop6(t testing.TB) {
	t.Helper()
	n.IP(t, "link set lo up")
	n.IP(t, "-6 route add local ff00::/8 dev lo")
	n.IP(t, "-6 route add local fd7f::/64 dev lo")
	var err error
	n.Do(func() { err = os.WriteFile("/proc/sys/net/ipv6/ip_nonlocal_bind", []byte("1"), 0) })
	require.NoError(t, err)
}

// Cable joins two new namespaces by a veth pair: v0 at 10.9.0.1 and fd09::1, v1 at 10.9.0.2 and
// fd09::2.
func Cable(t testing.TB, mtu int) [2]*Namespace {
	t.Helper()
	ns := [2]*Namespace{NewNamespace(t), NewNamespace(t)}
	Plug(t, ns, mtu)
	for _, n := range ns {
		n.IP(t, "link set lo up")
	}
	return ns
}

// Plug puts the cable between two namespaces, again if it was deleted.
func Plug(t testing.TB, ns [2]*Namespace, mtu int) {
	t.Helper()
	plug(t, ns, "v", 9, mtu)
}

// PlugAnother joins two namespaces by one more cable: w0 at 10.10.0.1 and fd10::1, w1 at 10.10.0.2 and
// fd10::2.
func PlugAnother(t testing.TB, ns [2]*Namespace, mtu int) {
	t.Helper()
	plug(t, ns, "w", 10, mtu)
}

func plug(t testing.TB, ns [2]*Namespace, name string, network, mtu int) {
	t.Helper()
	ns[0].IP(t,
		fmt.Sprintf("link add %s0 mtu %d type veth peer name %s1 mtu %d netns %d", name, mtu, name, mtu, ns[1].thread))
	for i, n := range ns {
		n.IP(t, fmt.Sprintf("addr add 10.%d.0.%d/24 dev %s%d", network, i+1, name, i))
		n.IP(t, fmt.Sprintf("link set %s%d up", name, i))
		if mtu >= 1280 { // IPv6 asks for as much
			n.IP(t, fmt.Sprintf("addr add fd%02d::%d/64 dev %s%d nodad", network, i+1, name, i))
		}
	}
	for i, n := range ns {
		n.AwaitCarrier(t, fmt.Sprintf("%s%d", name, i))
	}
}

// Unmerged makes an interface send each segment by itself, as a wire does.
func (n *Namespace) Unmerged(t testing.TB, name string) {
	t.Helper()
	n.IP(t, "link set "+name+" gso_max_segs 1")
}

// AwaitCarrier waits until the kernel has noticed that an interface is plugged in; before, it drops
// all packets sent.
func (n *Namespace) AwaitCarrier(t testing.TB, name string) {
	t.Helper()
	running := false
	for deadline := time.Now().Add(20 * time.Second); !running &&
		time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		n.Do(func() {
			ifi, err := net.InterfaceByName(name)
			running = err == nil && ifi.Flags&net.FlagRunning != 0
		})
	}
	require.True(t, running, "%s has no carrier", name)
}

// DropLarger makes the namespace lose, without a word, arriving packets of more than size bytes, like
// a switch port with a smaller MTU than the hosts'. Unlike a wire, a veth carries merged segments,
// which would be lost as well, so senders must not merge: see Unmerged.
func (n *Namespace) DropLarger(t testing.TB, size int) {
	t.Helper()
	n.drop(t, nftables.TableFamilyINet, &expr.Meta{Key: expr.MetaKeyLEN, Register: 1},
		&expr.Byteorder{SourceRegister: 1, DestRegister: 1, Op: expr.ByteorderHton, Len: 4, Size: 4}, // Cmp compares bytes.
		&expr.Cmp{Op: expr.CmpOpGt, Register: 1, Data: binaryutil.BigEndian.PutUint32(uint32(size))})
}

// DropMulticast makes the namespace lose arriving multicast: all groups of IPv4, and the site's groups
// of IPv6. Groups of the link stay, as neighbours find each other by them.
func (n *Namespace) DropMulticast(t testing.TB) {
	t.Helper()
	n.DropMulticastFrom(t, "")
}

// DropMulticastFrom is DropMulticast for packets that arrive at one interface; "": at any.
func (n *Namespace) DropMulticastFrom(t testing.TB, iface string) {
	t.Helper()
	for _, f := range []struct {
		family       nftables.TableFamily
		destination  uint32 // in the IP header
		mask, prefix []byte
	}{
		{nftables.TableFamilyIPv4, 16, []byte{0xf0, 0}, []byte{0xe0, 0}},
		{nftables.TableFamilyIPv6, 24, []byte{0xff, 0x0f}, []byte{0xff, 0x05}},
	} {
		match := []expr.Any{
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: f.destination, Len: 2},
			&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 2, Mask: f.mask, Xor: []byte{0, 0}},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: f.prefix},
		}
		if iface != "" {
			name := make([]byte, unix.IFNAMSIZ)
			copy(name, iface)
			match = append(match, &expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
				&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: name})
		}
		n.drop(t, f.family, match...)
	}
}

// Heal takes back every DropLarger and DropMulticast.
func (n *Namespace) Heal(t testing.TB) {
	t.Helper()
	n.nft(t, (*nftables.Conn).FlushRuleset)
}

// drop adds a rule for packets that arrive from other hosts.
func (n *Namespace) drop(t testing.TB, family nftables.TableFamily, match ...expr.Any) {
	t.Helper()
	n.nft(t, func(c *nftables.Conn) {
		table := c.AddTable(&nftables.Table{Name: "systest", Family: family})
		chain := c.AddChain(&nftables.Chain{
			Name: "in", Table: table, Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookInput, Priority: nftables.ChainPriorityFilter,
		})
		exprs := append([]expr.Any{
			&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: append([]byte("lo"), make([]byte, unix.IFNAMSIZ-2)...)},
		}, match...)
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: append(exprs, &expr.Verdict{Kind: expr.VerdictDrop})})
	})
}

func (n *Namespace) nft(t testing.TB, change func(*nftables.Conn)) {
	t.Helper()
	var err error
	n.Do(func() {
		var c *nftables.Conn
		if c, err = nftables.New(); err == nil {
			change(c)
			err = c.Flush()
		}
	})
	require.NoError(t, err)
}
