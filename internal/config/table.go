package config

import (
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Variable is one row of the table.
type Variable struct {
	Name    string
	Type    string // choice, number, size, duration, ...
	Default string
	Allowed string // what a value must be, in words
	Help    string // one line
	Secret  bool   // the value is not to be shown

	set func(s *Settings, text string) bool
}

// Variables returns the table, in the order of the reference.
func Variables() []Variable { return slices.Concat(table, elsewhere) }

const maxPayload = 65507 - 32 // of an IPv4 datagram, behind our header

// table holds the variables that Settings is made of.
var table = []Variable{
	row("MCAST_FABRIC", "auto", func(s *Settings) *string { return &s.Fabric }, choice("auto", "udp", "shm", "verbs"),
		"The transport of a group; auto takes shm when all ranks are on one host, else verbs where every rank has an RDMA "+
			"device in hardware and multicast by them reaches all ranks, else udp. verbs sends chunks, and Reduce-Scatter "+
			"from rank to rank, through RDMA devices (RoCE v2), the rest as udp does."),
	row("MCAST_RENDEZVOUS", "", func(s *Settings) *string { return &s.Rendezvous },
		orEmpty(hostPort(), "from the launcher's variables"),
		"Where rank 0 listens while the ranks of `mcast bench` find each other."),
	row("MCAST_TIMEOUT", "30s", func(s *Settings) *time.Duration { return &s.Timeout },
		duration(100*time.Millisecond, time.Hour),
		"How long a rank may be stopped, starved or cut off: it counts as lost after 1.25 times as long. It counts as lost "+
			"sooner only if the kernel says that its process has ended. Time in which the waiting rank itself does not run "+
			"never counts. A path counts as broken after 1.5 times as long without acknowledgement of data that the peer has "+
			"room for. TCP asks for a connection after 0, 1, 3 and 7 s: less than 4s is too short for a network that may lose "+
			"a request twice."),
	row("MCAST_JOIN_TIMEOUT", "5m", func(s *Settings) *time.Duration { return &s.JoinTimeout },
		duration(100*time.Millisecond, 24*time.Hour),
		"How long a rank waits for all others when a group is formed; time does not count in which it does not run itself."),
	row("MCAST_CLASS", "foreground", func(s *Settings) *string { return &s.Class }, choice("foreground", "background"),
		"A background group (checkpoints) takes the part of the link that the foreground groups of its host and user "+
			"leave, at least a part in 32 or 1 MiB/s, and makes them only a little slower. While they move nothing, it takes "+
			"the whole link. Its packets have DSCP 8 (CS1)."),
	row("MCAST_DSCP", "0", func(s *Settings) *int { return &s.DSCP }, number(0, 63),
		"Class of service (DSCP) of the packets of a foreground group; network switches that know it may prefer them to "+
			"background packets."),
	row("MCAST_LOG", "warn", func(s *Settings) *slog.Level { return &s.Log }, level(),
		"The least level of messages that are written to standard error."),

	row("MCAST_METRICS", "auto", func(s *Settings) *string { return &s.Metrics }, autoOffOrDirectory(),
		"Where each process has the socket by which `mcast top` and `mcast metrics` see its groups, for its user alone; "+
			"auto: in /tmp/mcast-UID."),

	row("MCAST_TRACE", "auto", func(s *Settings) *string { return &s.Trace }, autoOffOrDirectory(),
		"The folder where a process writes the last operations of its groups, as trace-HOST-PID.json for Perfetto, when a "+
			"group fails or at SIGUSR2; auto: /tmp/mcast-UID, where the newest 32 stay; off: nothing is remembered."),

	row("MCAST_IFACE", "", func(s *Settings) *string { return &s.Interface },
		orEmpty(interfaces(),
			"the networks that all hosts share are tried, the default route's first; lo if all ranks are on this host"),
		"Network interface for multicast and control traffic. With several, multicast takes each in turn (there are at "+
			"least as many subgroups), and everything else the first. Name as many on each host."),
	row("MCAST_FAMILY", "auto", func(s *Settings) *string { return &s.Family }, choice("auto", "4", "6"),
		"The version of IP; auto: as NCCL_SOCKET_FAMILY (AF_INET, AF_INET6) or MCAST_GROUP says, else IPv4 where every "+
			"rank has an IPv4 address, else IPv6."),
	row("MCAST_MULTICAST", "auto", func(s *Settings) *string { return &s.Multicast }, choice("auto", "require", "off"),
		"How Allgather and Broadcast travel between hosts; auto: by multicast where it reaches every rank, else from rank "+
			"to rank over TCP, as a ring does; require fails there. off relays without trying (RDMA devices multicast probes "+
			"of the paths at a join)."),
	row("MCAST_NODES", "auto", func(s *Settings) *string { return &s.Nodes }, choice("auto", "off"),
		"Whether the ranks of a host work together, so that data cross its link once; auto: where there are several hosts, "+
			"and several ranks on some. It changes the order of sums, and so their last bits; off keeps the order of one rank "+
			"a host."),
	row("MCAST_TOPOLOGY", "", func(s *Settings) *string { return &s.Topology },
		orEmpty(places(), "the switches in SLURM_TOPOLOGY_ADDR, else unknown"),
		"Where in the network this host is, from the outermost part to the innermost, as row2/rack7. Data that go from "+
			"rank to rank then enter and leave each part once."),
	row("MCAST_GROUP", "", func(s *Settings) *netip.Addr { return &s.Group },
		orEmpty(multicast(), "derived from the job, in 239.192.0.0/14 or ff15::/16"),
		"First multicast group; subgroup g uses the address g above it."),
	row("MCAST_PORT", "0", func(s *Settings) *uint16 { return &s.Port },
		orZero(number[uint16](1024, 65535), "derived from the job"),
		"UDP port of the multicast groups. If another program has it, a derived port is drawn anew; with a port that was "+
			"set, ranks relay."),
	row("MCAST_TTL", "1", func(s *Settings) *int { return &s.TTL }, number(0, 255),
		"How many routers a multicast datagram may pass, plus one; 0 keeps it on the host."),
	row("MCAST_CHAINS", "0", func(s *Settings) *int { return &s.Chains },
		orZero(number(1, 256),
			"over a network all ranks, at most 64 and the chunks of the window by 4; one if all are on one host"),
		"How many ranks multicast at a time (M in the paper)."),
	row("MCAST_SUBGROUPS", "1", func(s *Settings) *int { return &s.Subgroups }, number(1, 16),
		"How many multicast groups share the load (G in the paper)."),
	row("MCAST_CHUNK", "0", func(s *Settings) *int { return &s.Chunk },
		orZero(size(64, maxPayload), "from the interface's MTU"),
		"Payload of a datagram. Also bounds the chunks of a switch."),
	row("MCAST_WINDOW", "0", func(s *Settings) *int { return &s.Window },
		orZero(size(4<<10, 1<<30), "from the socket buffer"),
		"How much a root may have on its way to the slowest receiver."),
	row("MCAST_RCVBUF", "0", func(s *Settings) *int { return &s.ReceiveBuffer },
		orZero(size(4<<10, 1<<30), "as large as the kernel allows"),
		"Receive buffer of a multicast socket."),
	row("MCAST_OFFLOAD", "auto", func(s *Settings) *string { return &s.Offload }, choice("auto", "gso", "batch", "single"),
		"How datagrams pass the kernel; auto takes the first of gso (segmentation offload), batch (sendmmsg) and single "+
			"that works."),
	row("MCAST_EAGER", "64KiB", func(s *Settings) *int { return &s.Eager }, size(0, 128<<10),
		"Operations of up to this total size (ranks times shard) go without a barrier."),
	row("MCAST_CUTOFF", "2ms", func(s *Settings) *time.Duration { return &s.Cutoff },
		duration(100*time.Microsecond, 10*time.Second),
		"The least time without news after which missing chunks are fetched, times the ranks of the host for each of its "+
			"cores; the rest of the cutoff is measured."),
	row("MCAST_LOSS", "0", func(s *Settings) *float64 { return &s.Loss }, fraction(0, 0.9),
		"Share of datagrams received from ranks and the switch, and of contributions to the switch, to throw away on "+
			"purpose, for tests."),
	row("MCAST_LOSS_SEED", "1", func(s *Settings) *uint64 { return &s.LossSeed }, number[uint64](0, math.MaxUint64),
		"Seed of MCAST_LOSS; the same seed throws away the same datagrams."),

	row("MCAST_SHM_CHUNK", "128KiB", func(s *Settings) *int { return &s.ShmChunk }, size(4<<10, 16<<20),
		"Size of a slot in a rank's shared-memory ring."),
	row("MCAST_SHM_SLOTS", "8", func(s *Settings) *int { return &s.ShmSlots }, number(2, 1024),
		"Slots in a rank's shared-memory ring."),
	row("MCAST_OUTPUTS", "0", func(s *Settings) *int { return &s.Outputs }, orZero(size(64<<10, 1<<39), "none"),
		"Memory of a host and group in which results of Allgathers lie once for all its ranks, where the program reserves "+
			"it (torch_mcast.fsdp does). It is used in turn, and takes real memory once it is written to. Four times the "+
			"largest result is plenty; a result may take half of this memory."),

	row("MCAST_SWITCH", "", func(s *Settings) *string { return &s.Switch },
		orEmpty(hostPorts(), "Reduce-Scatter goes directly"),
		"Switches (`mcast switch`) that Reduce-Scatter goes through, tried in order. All ranks name as many or none; ranks "+
			"may name different switches of one tree."),
	row("MCAST_SWITCH_MODE", "reproducible", func(s *Settings) *string { return &s.SwitchMode },
		choice("reproducible", "fast"),
		"How the switch sums: in a fixed order, so that the same inputs give the same bits, or in order of arrival, in "+
			"less memory."),
	row("MCAST_SWITCH_TIMEOUT", "10s", func(s *Settings) *time.Duration { return &s.SwitchTimeout },
		duration(100*time.Millisecond, 5*time.Minute),
		"How long the switch may be silent, while the rank itself runs, before Reduce-Scatter goes on directly."),
	row("MCAST_SECRET", "", func(s *Settings) *string { return &s.Secret },
		orEmpty(password(), "everybody on the network is taken for a rank"),
		"The secret that ranks prove to each other and to the switch when they connect, and that readers of metrics prove. "+
			"Multicast datagrams, and the ones to and from the switch, then carry a keyed tag. All ranks need the same. It is "+
			"never logged. "+
			"With store the ranks of each process group of torch_mcast make one and share it through torch's store: "+
			"everybody who can read the store knows it too, and a switch does not."),
	row("MCAST_SECRET_FILE", "", func(s *Settings) *string { return &s.SecretFile },
		orEmpty(file(), "MCAST_SECRET says it"),
		"A file with the secret on its first line, to keep it out of the environment. A name that does not begin with / is "+
			"one of a systemd credential (LoadCredential=)."),

	row("MCAST_ENCRYPT", "0", func(s *Settings) *bool { return &s.Encrypt }, onOff(),
		"1 encrypts multicast of ranks, and data to the switch and back (AES-256-GCM); it takes MCAST_SECRET. TCP between "+
			"ranks is encrypted wherever there is a secret, with 0 too. It encrypts neither memory that ranks of a host share "+
			"nor the data of NCCL's messages (MCAST_NET_TLS)."),
	row("MCAST_CHECKSUM", "off", func(s *Settings) *string { return &s.Checksum }, choice("off", "crc32c"),
		"With crc32c every multicast datagram carries a checksum that ranks make and compare: datagrams that a device or a "+
			"network switch has changed are dropped, and sent again. It does not stop an attacker. With MCAST_SECRET tags do "+
			"as much, and there is no checksum."),

	row("MCAST_NET_FABRIC", "auto", func(s *Settings) *string { return &s.NetFabric },
		choice("auto", "shm", "tcp", "verbs"),
		"The transport of NCCL's point-to-point messages; auto takes shm between processes of one host, else tcp. With "+
			"verbs RDMA devices (RoCE v2) move them, without a copy; all ranks need it then."),
	row("MCAST_NET_LANES", "0", func(s *Settings) *int { return &s.NetLanes },
		orZero(number(1, 16), "4 between hosts, on fewer cores as many, 2 at the least; 2 within a host"),
		"TCP connections, or queue pairs of RDMA devices, that a large message to one peer is spread over; if the two ends "+
			"differ, the lesser counts."),
	row("MCAST_NET_ZEROCOPY", "auto", func(s *Settings) *string { return &s.NetZerocopy }, choice("auto", "on", "off"),
		"Whether large messages are sent without a copy (MSG_ZEROCOPY); auto tries it and stops when the kernel copies all "+
			"the same."),
	row("MCAST_NET_TLS", "auto", func(s *Settings) *string { return &s.NetTLS }, choice("auto", "require", "off"),
		"With a secret: whether the kernel seals NCCL's point-to-point messages over TCP (TLS, AES-256-GCM); auto: where "+
			"the kernels of both ends can (modprobe tls), and a warning says so where they go in the clear; require fails "+
			"there."),
	row("MCAST_DRIVER", "auto", func(s *Settings) *string { return &s.Driver }, choice("auto", "agent", "caller"),
		"Who moves CollNet's bytes: agent, a thread of its own; caller, the thread of NCCL that asks whether an operation "+
			"is done; auto takes caller where the process may run on fewer than 4 cores."),
	row("MCAST_GPU_MEMORY", "host", func(s *Settings) *string { return &s.GPUMemory },
		choice("host", "coherent", "dmabuf"),
		"How NCCL's plugin reaches GPU buffers: host: through host memory that NCCL copies to; coherent: the CPU reads "+
			"device memory itself (Grace Hopper); dmabuf: by a mapping of memory that NCCL exports."),
	row("MCAST_COLLNET_DEVICES", "0", func(s *Settings) *int { return &s.CollNetDevices },
		orZero(number(1, 8), "as many as the launcher starts ranks on each host, where NCCL_COLLNET_ENABLE is set"),
		"As how many devices CollNet offers NCCL its network interface: one for each GPU of a host, and as many on all "+
			"hosts."),
	row("MCAST_TUNER_ALLGATHER", "auto", func(s *Settings) *int { return &s.TunerAllgather },
		orTable(orZero(size(1, 1<<40), "never")),
		"NCCL's Allgathers of this total size or more go through CollNet, where it is connected; auto: only where that is "+
			"faster."),
	row("MCAST_TUNER_REDUCE_SCATTER", "auto", func(s *Settings) *int { return &s.TunerReduceScatter },
		orTable(orZero(size(1, 1<<40), "never")),
		"NCCL's Reduce-Scatters of this total size or more go through CollNet, where it is connected; auto: only where "+
			"that is faster."),

	row("MCAST_SIMD", "auto", func(s *Settings) *string { return &s.SIMD }, choice("auto", "avx512", "avx2", "generic"),
		"Instruction set of the sums; auto takes the best that the CPU has. It is one for all groups of a process: the "+
			"group that joins last sets it, and warns if the group before it asked for a different one. All give the "+
			"same bits."),
}

// elsewhere holds the variables that are read by another part, which checks
// them itself; they are listed so that one reference has them all.
var elsewhere = []Variable{
	{Name: "MCAST_LIBRARY", Type: "path", Allowed: "empty (found beside the package) or the path of a file",
		Help: "Read by torch_mcast alone: the libnccl-net-mcast.so to load."},
	{Name: "MCAST_PATCH_TORCH", Type: "choice", Default: "on", Allowed: "one of on, off",
		Help: "Read by torch_mcast alone, until a group has replaced them. on replaces methods of torch's Work, of every " +
			"backend, so that is_completed() and its like answer for our operations. off leaves torch's class as it is: of " +
			"our operations only wait() and futures then answer, is_completed() stays False, and recv() from any rank is " +
			"an error."},
	{Name: "MCAST_REPLACE", Type: "list", Allowed: "empty (none), gloo, nccl or gloo,nccl",
		Help: "Read by torch_mcast alone, as a process group is made: groups of these names are of " +
			"mcast, for programs that know no other name. get_backend() still tells the program's name."},
}

// row ties a variable to its field of Settings. The default is text in the
// variable's own syntax, so it passes the same check as any other value.
func row[T any](name, def string, field func(*Settings) *T, k kind[T], help string) Variable {
	return Variable{Name: name, Type: k.name, Default: def, Allowed: k.allowed, Help: help, Secret: k.secret,
		set: func(s *Settings, text string) bool {
			v, ok := k.parse(text)
			if ok {
				*field(s) = v
			}
			return ok
		}}
}

// Markdown returns docs/reference/settings.md.
func Markdown() string {
	var b strings.Builder
	b.WriteString(`# Environment reference

<!-- Generated by "go generate ./internal/config"; change internal/config/table.go instead. -->

Every variable may be set in the environment of a process or given for one group alone (mcast_open's options). A Go
program takes them by collnet.FromEnv, and sets the ones with a field in collnet.Options. An empty value counts as not
set. A value that is not allowed is an error that names the variable, the value and the allowed values; a variable
that is not listed here has no effect, and a warning says so. Give every rank of a group the same values; MCAST_IFACE,
MCAST_TOPOLOGY, MCAST_CLASS, MCAST_LOG, MCAST_METRICS, MCAST_TRACE, MCAST_LOSS, MCAST_LOSS_SEED, MCAST_SWITCH,
MCAST_SWITCH_TIMEOUT, MCAST_NET_* (but for MCAST_NET_FABRIC=verbs, which all need, and MCAST_NET_TLS=require, which
the other end must not answer with off), MCAST_GPU_MEMORY, MCAST_SIMD, MCAST_LIBRARY and MCAST_PATCH_TORCH may differ.

| variable | default | allowed | meaning |
|---|---|---|---|
`)
	for _, v := range Variables() {
		def := "empty"
		if v.Default != "" {
			def = "`" + v.Default + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", v.Name, def, v.Allowed, v.Help)
	}
	return b.String()
}
