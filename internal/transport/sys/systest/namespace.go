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

// Cable joins two new namespaces by a veth pair: v0 at 10.9.0.1 and v1 at 10.9.0.2.
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
	ns[0].IP(t, fmt.Sprintf("link add v0 mtu %d type veth peer name v1 mtu %d netns %d", mtu, mtu, ns[1].thread))
	for i, n := range ns {
		n.IP(t, fmt.Sprintf("addr add 10.9.0.%d/24 dev v%d", i+1, i))
		n.IP(t, fmt.Sprintf("link set v%d up", i))
	}
	for i, n := range ns {
		n.AwaitCarrier(t, fmt.Sprintf("v%d", i))
	}
}

// Unmerged makes an interface send each segment by itself, as a wire does.
func (n *Namespace) Unmerged(t testing.TB, name string) {
	t.Helper()
	n.IP(t, "link set "+name+" gso_max_segs 1")
}

// AwaitCarrier waits until the kernel has noticed that an interface is
// plugged in; before, it drops what is sent.
func (n *Namespace) AwaitCarrier(t testing.TB, name string) {
	t.Helper()
	running := false
	for deadline := time.Now().Add(20 * time.Second); !running && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		n.Do(func() {
			ifi, err := net.InterfaceByName(name)
			running = err == nil && ifi.Flags&net.FlagRunning != 0
		})
	}
	require.True(t, running, "%s has no carrier", name)
}

// DropLarger makes the namespace lose, without a word, IPv4 packets of more than size bytes that
// arrive, as a switch port does whose MTU is smaller than the hosts'. Unlike a wire, a veth carries
// merged segments, which would be lost as well, so senders must not merge: see Unmerged.
func (n *Namespace) DropLarger(t testing.TB, size int) {
	t.Helper()
	n.drop(t, &expr.Meta{Key: expr.MetaKeyLEN, Register: 1},
		&expr.Byteorder{SourceRegister: 1, DestRegister: 1, Op: expr.ByteorderHton, Len: 4, Size: 4}, // Cmp compares bytes.
		&expr.Cmp{Op: expr.CmpOpGt, Register: 1, Data: binaryutil.BigEndian.PutUint32(uint32(size))})
}

// DropMulticast makes the namespace lose IPv4 multicast that arrives.
func (n *Namespace) DropMulticast(t testing.TB) {
	t.Helper()
	const destination, length = 16, 4 // in an IPv4 header
	n.drop(t, &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: destination, Len: length},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: length, Mask: []byte{0xf0, 0, 0, 0}, Xor: make([]byte, length)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{0xe0, 0, 0, 0}})
}

// Heal takes back every DropLarger and DropMulticast.
func (n *Namespace) Heal(t testing.TB) {
	t.Helper()
	n.nft(t, (*nftables.Conn).FlushRuleset)
}

// drop adds a rule to what arrives from other hosts.
func (n *Namespace) drop(t testing.TB, match ...expr.Any) {
	t.Helper()
	n.nft(t, func(c *nftables.Conn) {
		table := c.AddTable(&nftables.Table{Name: "systest", Family: nftables.TableFamilyIPv4})
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
