package doctor

var settingSymptoms = []symptom{
	{"setting-not-allowed", func(f *Facts) { f.Settings.Bad = `MCAST_FABRIC="tcp" is not allowed` },
		Fault, "environment", "MCAST_FABRIC", "mcast env"},
	{"setting-unknown", func(f *Facts) {
		f.Settings.Unknown = []string{"MCAST_IFCAE has no effect: did you mean MCAST_IFACE?"}
	}, Warning, "MCAST_IFCAE", "did you mean MCAST_IFACE", "unset MCAST_IFCAE"},
	{
		"chunk-too-large",
		given("MCAST_CHUNK", "9000"),
		Fault,
		"MCAST_CHUNK",
		"eth0 carries 9000",
		"unset",
	},
	{
		"receive-buffer-cut",
		given("MCAST_RCVBUF", "32M"),
		Warning,
		"MCAST_RCVBUF",
		"net.core.rmem_max=16777216",
		"net.core.rmem_max=33554432",
	},
	{
		"loss-on-purpose",
		given("MCAST_LOSS", "0.01"),
		Warning,
		"MCAST_LOSS",
		"0.01",
		"unset MCAST_LOSS",
	},
	{"ttl-of-zero", given("MCAST_TTL", "0"), Fault, "MCAST_TTL", "on this host", "unset MCAST_TTL"},
	{
		"gloo-interface",
		given("GLOO_SOCKET_IFNAME", "eth1"),
		Warning,
		"GLOO_SOCKET_IFNAME",
		"gloo takes eth1",
		"GLOO_SOCKET_IFNAME=eth0",
	},
	{
		"nccl-interface",
		given("NCCL_SOCKET_IFNAME", "=eth"),
		Warning,
		"NCCL_SOCKET_IFNAME",
		"takes eth0",
		"NCCL_SOCKET_IFNAME=eth0",
	},
	{
		"nccl-interface",
		given("NCCL_SOCKET_IFNAME", "^eth"),
		Warning,
		"NCCL_SOCKET_IFNAME",
		"takes eth0",
		"NCCL_SOCKET_IFNAME=eth0",
	},
}

var interfaceSymptoms = []symptom{
	{"interface-missing", func(f *Facts) {
		f.Chosen = Choice{
			Name:  "eth9",
			Why:   ByName,
			Error: `MCAST_IFACE="eth9": there is no interface eth9`,
		}
	}, Fault, "MCAST_IFACE", "no interface eth9", "MCAST_IFACE=eth0"},
	{
		"interface-down",
		func(f *Facts) { eth0(f).Up, eth0(f).Carrier, f.Chosen.Why = false, false, ByName },
		Fault,
		"eth0",
		"down",
		"ip link set eth0 up",
	},
	{
		"no-carrier",
		func(f *Facts) { eth0(f).Carrier = false },
		Fault,
		"eth0",
		"no carrier",
		"ethtool eth0",
	},
	{"multicast-off", func(f *Facts) { eth0(f).Multicast = false }, Warning, "eth0", "its flag is off",
		"sudo ip link set eth0 multicast on"},
	{"no-family", func(f *Facts) {
		f.Chosen = Choice{Why: ByRoute, Error: "no interface has an IPv6 address, which MCAST_FAMILY asks for"}
	}, Fault, "host0", "no interface has an IPv6 address", "unset MCAST_FAMILY"},
	{"no-family", func(f *Facts) {
		f.Chosen = Choice{Name: "eth0", Why: ByName, Error: `MCAST_IFACE="eth0" has no IPv6 address`}
	}, Fault, "eth0", "has no IPv6 address", "unset MCAST_FAMILY"},
	{"no-address", func(f *Facts) {
		eth0(f).IPv4, eth0(f).IPv6 = nil, []string{"fe80::1/64", "fd00::1/64"}
		f.Chosen = Choice{Name: "eth0", Why: ByName, Error: "MCAST_IFACE has no IPv4 address"}
	}, Fault, "eth0", "only IPv6 (fd00::1/64)", "MCAST_FAMILY"},
	{"no-address", func(f *Facts) {
		eth0(f).IPv4, eth0(f).IPv6 = nil, []string{"fd00::1/64"}
		f.Chosen = Choice{Name: "lo", Address: "127.0.0.1", Why: ByDefault}
	}, Fault, "eth0", "only IPv6 (fd00::1/64), and is not taken", "MCAST_IFACE=eth0"},
	{"no-address", func(f *Facts) {
		eth0(f).IPv4, eth0(f).IPv6 = nil, nil
		f.Chosen = Choice{Name: "eth0", Why: ByName, Error: "interface eth0 has no address"}
	}, Fault, "eth0", "the interface has no address", "dev eth0"},
	{"ipv6-only", func(f *Facts) {
		eth0(f).IPv4, eth0(f).IPv6, f.Chosen.Address = nil, []string{"fd00::1/64"}, "fd00::1"
	}, Note, "eth0", "it has IPv6 alone", "ip addr add"},
	{"interface-ambiguous", func(f *Facts) {
		also(f, "eth1", "10.1.0.1/24", nil)
		f.Routes = f.Routes[1:]
		f.Chosen = Choice{Name: "lo", Address: "127.0.0.1", Why: ByDefault}
	}, Fault, "host0", "several interfaces: eth0, eth1", "MCAST_IFACE=eth0"},
	{"no-network", onlyLoopback, Warning, "host0", "loopback alone", "ip addr"},
	{
		"no-route",
		func(f *Facts) { f.Routes = nil },
		Fault,
		"eth0",
		"with the address 10.0.0.1/24",
		"sudo ip route add 10.0.0.0/24 dev eth0",
	},
	{"no-route", func(f *Facts) {
		eth0(f).IPv4, f.Routes = []string{"10.0.0.1/32"}, nil
	}, Fault, "eth0", "no route leads through", "sudo ip addr add 10.0.0.1/24 dev eth0"},
	{"same-address", func(f *Facts) { also(f, "docker0", "10.0.0.1/16", nil) }, Fault, "docker0",
		"eth0 and docker0 have the same address, 10.0.0.1", "sudo ip addr del 10.0.0.1/16 dev docker0"},
	{
		"same-network",
		func(f *Facts) { also(f, "eth1", "10.0.0.2/24", nil) },
		Warning,
		"eth1",
		"in one network",
		"arp_ignore=1",
	},
	{"faster-interface", func(f *Facts) {
		also(f, "ens5", "10.1.0.1/24", func(l *Link) { l.Mbps = 100000 })
	}, Warning, "eth0", "ens5 at 100000", "MCAST_IFACE=ens5"},
	{"virtual-interface", func(f *Facts) {
		also(
			f,
			"docker0",
			"172.17.0.1/16",
			func(l *Link) { l.Kind, l.Hardware, l.Mbps = "bridge", false, 0 },
		)
		f.Chosen = Choice{Name: "docker0", Address: "172.17.0.1", Why: ByName}
		f.Routes = append(f.Routes, Route{To: "172.17.0.0/16", Link: "docker0"})
	}, Warning, "docker0", "container's bridge", "MCAST_IFACE=eth0"},
	{
		"virtual-interface",
		func(f *Facts) { eth0(f).Kind = "wireguard" },
		Warning,
		"eth0",
		"wireguard",
		"MCAST_IFACE",
	},
	{
		"container-network",
		func(f *Facts) { eth0(f).Kind = "veth" },
		Note,
		"eth0",
		"virtual cable",
		"hostNetwork",
	},
}
