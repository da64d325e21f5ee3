package doctor

import "time"

// Facts are what was seen of one host. They hold no judgement: Diagnose has that. A number of 0 and
// an empty text mean that it is not known, unless a field says otherwise; what could not be seen is
// in Unseen, with the reason.
type Facts struct {
	Host     string   `json:"host"`
	Kernel   Kernel   `json:"kernel"`
	Settings Settings `json:"settings"`

	Chosen Choice  `json:"chosen"`
	Links  []Link  `json:"links"`
	Routes []Route `json:"routes"`
	// MulticastRoute is what the routing table says of 239.192.0.1.
	MulticastRoute string `json:"multicast_route"`

	IGMP     IGMP     `json:"igmp"`
	Net      Net      `json:"net"`
	Firewall Firewall `json:"firewall"`

	CPU    CPU    `json:"cpu"`
	Memory Memory `json:"memory"`
	Limits Limits `json:"limits"`
	Cloud  string `json:"cloud"` // the vendor that the firmware names

	Devices Devices `json:"devices"`
	NCCL    NCCL    `json:"nccl"`

	Tests  []Test   `json:"tests"`
	Unseen []Unseen `json:"unseen"`
}

// Unseen is something that could not be looked at.
type Unseen struct {
	What   string `json:"what"`
	Why    string `json:"why"`
	Remedy string `json:"remedy"` // what would show it
}

// Kernel is the running kernel, and whether it has the features that the library uses.
type Kernel struct {
	Release      string `json:"release"`
	Batch        bool   `json:"recvmmsg"`
	Segment      bool   `json:"udp_segment"`
	Merge        bool   `json:"udp_gro"`
	ReusePort    bool   `json:"so_reuseport"`
	MulticastAll bool   `json:"ip_multicast_all"`
	Zerocopy     bool   `json:"so_zerocopy"`
	Memfd        bool   `json:"memfd_create"`
	TCPWindow    bool   `json:"tcp_info_window"` // TCP_INFO tells the peer's window, since 5.4
	TCPTimers    bool   `json:"tcp_rto_min_us"`  // how soon TCP repeats can be set, since 6.15

	Filtered bool      `json:"seccomp"` // a seccomp filter decides which system calls this process may make
	Blocked  []Blocked `json:"blocked"` // of the calls that the library makes
}

// Blocked is a system call that the library uses and that is refused here.
type Blocked struct {
	Name  string `json:"name"`
	Error string `json:"error"`
}

// UnixSockets names, among the calls, those sockets by which ranks of a host share memory.
const UnixSockets = "AF_UNIX sockets"

// Settings are the variables that are set, and the mistakes in them.
type Settings struct {
	Set     map[string]string `json:"set"` // MCAST_*, and other variables about networks
	Bad     string            `json:"bad"`
	Unknown []string          `json:"unknown"`
	// Secret tells secrets apart without giving them away (identity.Identity.Name, or config.InStore); empty: there is
	// none.
	Secret string `json:"secret"`
}

// Choice is the interface that the library takes.
type Choice struct {
	Name    string `json:"name"`
	Address string `json:"address"` // IPv4
	Why     string `json:"why"`     // one of the constants below
	Error   string `json:"error"`
}

// Why an interface is taken.
const (
	ByName     = "MCAST_IFACE names it"
	ByRoute    = "it has the default route"
	ByBeingOne = "it is the only one with an address"
	ByDefault  = "nothing but loopback is left"
)

// Link is a network interface.
type Link struct {
	Name      string   `json:"name"`
	Kind      string   `json:"kind"` // device, loopback, veth, bridge, ...
	Up        bool     `json:"up"`
	Carrier   bool     `json:"carrier"`
	Multicast bool     `json:"multicast"`
	Loopback  bool     `json:"loopback"`
	Hardware  bool     `json:"hardware"` // a device on a bus, or one that lies on such
	MTU       int      `json:"mtu"`
	Below     []string `json:"below"` // ports of a bridge or bond, what a VLAN lies on
	IPv4      []string `json:"ipv4"`  // prefixes
	IPv6      []string `json:"ipv6"`
	Mbps      int      `json:"mbps"`
	Half      bool     `json:"half_duplex"`
	Driver    string   `json:"driver"`
	Qdisc     string   `json:"qdisc"` // for packets that are sent

	Queues    int      `json:"queues"` // for packets that are received
	QueuesMax int      `json:"queues_max"`
	Ring      int      `json:"ring"` // descriptors for received packets
	RingMax   int      `json:"ring_max"`
	IRQs      []IRQ    `json:"irqs"`
	Near      string   `json:"near_cpus"` // to its device, as 0-15; empty: all, or not known
	Off       []string `json:"off"`       // helpful offloads that are switched off

	Packets int `json:"received_packets"`
	Lost    int `json:"received_errors"` // errors, and packets that found no descriptor
}

// IRQ is an interrupt and the CPUs that it goes to.
type IRQ struct {
	Number int    `json:"number"`
	CPUs   string `json:"cpus"` // such as 0-3
}

// Route is an entry of the main table for IPv4.
type Route struct {
	To   string `json:"to"` // a prefix; 0.0.0.0/0 is the default route
	Link string `json:"link"`
	MTU  int    `json:"mtu"` // 0: the link's
}

// IGMP is how the chosen interface speaks to switches that forward multicast.
type IGMP struct {
	Version        string  `json:"version"`         // V2 or V3, as the kernel shows it
	Forced         int     `json:"forced"`          // force_igmp_version; 0: not
	MaxMemberships int     `json:"max_memberships"` // of a socket; -1: not known
	Querier        Querier `json:"querier"`
}

// Querier is whether somebody asks who listens to which group.
type Querier struct {
	Listened time.Duration `json:"listened_ns"` // 0: nobody could
	Heard    bool          `json:"heard"`
	From     string        `json:"from"`
	Version  int           `json:"version"`
}

// Net is what the kernel allows sockets.
type Net struct {
	RmemMax    int `json:"rmem_max"`
	WmemMax    int `json:"wmem_max"`
	OptmemMax  int `json:"optmem_max"`
	Backlog    int `json:"netdev_max_backlog"`
	RPFilter   int `json:"rp_filter"` // the larger value, of the chosen interface and of all
	Ports      int `json:"local_ports"`
	WindowFor  int `json:"window_chunks"` // full chunks that a receive buffer surely holds
	ChunkBytes int `json:"chunk_bytes"`   // that fill a packet of the chosen interface
}

// Firewall is what the rules of this host do to what the library sends and receives.
type Firewall struct {
	Seen  bool   `json:"seen"`
	Paths []Path `json:"paths"`
}

// Path is one kind of packet on its way in or out.
type Path struct {
	What    string `json:"what"`    // such as: UDP to a group, in
	Verdict string `json:"verdict"` // one of the constants below
	By      string `json:"by"`      // the chain that drops it, or has a rule that is not understood
}

// Verdicts of a firewall.
const (
	Passes  = "passes"
	Dropped = "dropped"
	Unclear = "unclear"
)

// CPU is what this process may compute with.
type CPU struct {
	Count      int     `json:"count"`   // of the host
	Allowed    int     `json:"allowed"` // by the affinity of this process
	Set        []int   `json:"set"`     // numbers of the allowed CPUs
	Quota      float64 `json:"quota"`   // CPUs; 0: none
	QuotaBy    string  `json:"quota_by"`
	Periods    int     `json:"periods"`   // of the quota so far
	Throttled  int     `json:"throttled"` // periods in which the quota was used up
	GOMAXPROCS int     `json:"gomaxprocs"`
	SIMD       string  `json:"simd"` // that sums use
	AVX2       bool    `json:"avx2"`
	Arch       string  `json:"arch"`
}

// Memory is what this process may fill, in bytes.
type Memory struct {
	Available   int    `json:"available"`
	Limit       int    `json:"limit"` // of a control group; 0: none
	LimitLeft   int    `json:"limit_left"`
	LimitBy     string `json:"limit_by"`
	SharedTotal int    `json:"dev_shm"` // -1: there is no /dev/shm
	HugePages   int    `json:"huge_pages_free"`
	Transparent string `json:"transparent_huge_pages"`
}

// Limits are those of this process.
type Limits struct {
	Files  int `json:"open_files"`    // hard; -1: none
	Locked int `json:"locked_memory"` // soft, bytes; -1: none
	// Threads is how many processes and threads there may be; 0: not known, or any number. Running is how many there are,
	// and ThreadsBy says what limits them.
	Threads   int    `json:"threads"`
	Running   int    `json:"threads_running"`
	ThreadsBy string `json:"threads_by"`
}

// Devices are what there is besides network interfaces.
type Devices struct {
	GPUs       []string `json:"gpus"` // bus addresses
	GPUDriver  string   `json:"gpu_driver"`
	RDMA       []string `json:"rdma"`
	RDMAUsable bool     `json:"rdma_usable"` // /dev/infiniband is there
}

// NCCL is what `mcast nccl check` says.
type NCCL struct {
	Found   bool   `json:"found"`
	Used    bool   `json:"used"`
	Version string `json:"version"`
	Plugin  string `json:"plugin"`
	Reason  string `json:"reason"`
}

// Test is something that was tried on this host.
type Test struct {
	Name  string        `json:"name"`
	Error string        `json:"error"` // empty: it worked
	Took  time.Duration `json:"took_ns"`
}

// Names of the tests.
const (
	TestSmall  = "small multicast loops back"
	TestFull   = "full-size multicast loops back"
	TestUDP    = "UDP between sockets of this host"
	TestTCP    = "TCP between sockets of this host"
	TestMemory = "memory of a window"
)
