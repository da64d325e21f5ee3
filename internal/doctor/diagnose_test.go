package doctor

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// healthy are the facts of a host with which all is well.
func healthy() Facts {
	return Facts{
		Host: "host0",
		Kernel: Kernel{Release: "6.18.0", Batch: true, Segment: true, Merge: true, ReusePort: true,
			MulticastAll: true, Zerocopy: true, Memfd: true, TCPWindow: true, TCPTimers: true},
		Settings: Settings{Set: map[string]string{"MCAST_TIMEOUT": "30s"}},
		Chosen:   Choice{Name: "eth0", Address: "10.0.0.1", Why: ByRoute},
		Links: []Link{
			{Name: "lo", Kind: "loopback", Up: true, Carrier: true, Loopback: true, MTU: 65536,
				IPv4: []string{"127.0.0.1/8"}, IPv6: []string{"::1/128"}},
			{
				Name:      "eth0",
				Kind:      "device",
				Up:        true,
				Carrier:   true,
				Multicast: true,
				Hardware:  true,
				MTU:       9000,
				IPv4: []string{
					"10.0.0.1/24",
				},
				IPv6:      []string{"fe80::1/64"},
				Mbps:      25000,
				Driver:    "ice",
				Qdisc:     "mq",
				Queues:    16,
				QueuesMax: 16,
				Ring:      2048,
				RingMax:   8160,
				Packets:   1 << 30,
				Lost:      3,
				IRQs:      []IRQ{{40, "0"}, {41, "1"}, {42, "2"}, {43, "3"}},
			},
		},
		Routes: []Route{{To: "0.0.0.0/0", Link: "eth0"}, {To: "10.0.0.0/24", Link: "eth0"}},

		MulticastRoute: "eth0",
		Cloud:          "Supermicro",
		IGMP: IGMP{Version: "V3", MaxMemberships: 20,
			Querier: Querier{Listened: time.Second, Heard: true, From: "10.0.0.254", Version: 3}},
		Net: Net{
			RmemMax:    16 << 20,
			WmemMax:    4 << 20,
			OptmemMax:  131072,
			Backlog:    1000,
			RPFilter:   2,
			Ports:      28232,
			WindowFor:  1000,
			ChunkBytes: 8928,
		},
		Firewall: Firewall{Seen: true, Paths: []Path{{What: "UDP that arrives", Verdict: Passes}}},
		CPU:      CPU{Count: 32, Allowed: 32, GOMAXPROCS: 32, SIMD: "avx2", AVX2: true, Arch: "amd64"},
		Memory:   Memory{Available: 64 << 30, SharedTotal: 32 << 30, Transparent: "madvise"},
		Limits:   Limits{Files: 1 << 20, Locked: -1},
		Devices: Devices{GPUs: []string{"0000:3b:00.0"}, GPUDriver: "580.65", RDMA: []string{"mlx5_0"},
			RDMAUsable: true},
		NCCL: NCCL{Found: true, Used: true, Version: "2.30.7"},
		Tests: []Test{
			{Name: TestSmall},
			{Name: TestFull},
			{Name: TestUDP},
			{Name: TestTCP},
			{Name: TestMemory},
		},
	}
}

func TestNothingIsFoundOnAHealthyHost(t *testing.T) {
	findings := Diagnose(healthy())
	assert.Empty(t, findings)
	assert.NotNil(t, findings, "JSON has a list")
}

// eth0 is the interface of the facts above.
func eth0(f *Facts) *Link { return f.Link("eth0") }

// also adds an interface like eth0.
func also(f *Facts, name, prefix string, change func(*Link)) {
	l := *eth0(f)
	l.Name, l.IPv4, l.IPv6 = name, []string{prefix}, nil
	if change != nil {
		change(&l)
	}
	f.Links = append(f.Links, l)
}

// onlyLoopback removes every interface of a host but loopback.
func onlyLoopback(f *Facts) {
	f.Links, f.Routes, f.MulticastRoute = f.Links[:1], nil, "network is unreachable"
	f.Chosen = Choice{Name: "lo", Address: "127.0.0.1", Why: ByDefault}
}

// set gives a variable a value.
func given(name, value string) func(*Facts) {
	return func(f *Facts) { f.Settings.Set[name] = value }
}

// symptom is a change to a healthy host, and the finding that the change must produce.
type symptom struct {
	rule     string
	change   func(*Facts)
	severity Severity
	subject  string
	says     string // part of What
	remedy   string // part of Remedy
}

// TestEachRule gives every rule facts that it must complain about, and asserts that there is this finding and no other.
func TestEachRule(t *testing.T) {
	tried := make(map[string]bool)
	for _, s := range slices.Concat(settingSymptoms, interfaceSymptoms, networkSymptoms, hostSymptoms) {
		tried[s.rule] = true
		t.Run(s.rule, func(t *testing.T) {
			f := healthy()
			s.change(&f)
			var found []Finding
			for _, finding := range Diagnose(f) {
				if finding.Name == s.rule {
					found = append(found, finding)
					continue
				}
				assert.Less(t, finding.Severity, Warning, "beside it: %+v", finding)
			}
			require.Len(t, found, 1)
			assert.Equal(t, s.severity, found[0].Severity)
			assertSays(t, found[0], s.subject, s.says, s.remedy)
		})
	}
	for _, r := range rules {
		assert.True(t, tried[r.name], "no facts for the rule %s", r.name)
	}
}

// assertSays asserts the subject of a finding, and parts of its text and of its remedy.
func assertSays(t *testing.T, found Finding, subject, says, remedy string) {
	t.Helper()
	assert.Equal(t, subject, found.Subject)
	assert.Contains(t, found.What, says)
	assert.Contains(t, found.Remedy, remedy)
	assert.NotEmpty(t, found.Why)
}

// TestNear holds that facts next to a symptom are none.
func TestNear(t *testing.T) {
	for name, change := range map[string]func(*Facts){
		"small MTU on a slow link": func(f *Facts) { eth0(f).MTU, eth0(f).Mbps = 1500, 1000 },
		"an unknown speed":         func(f *Facts) { eth0(f).Mbps = 0 },
		"a faster one that was named against": func(f *Facts) {
			f.Chosen.Why = ByName
			also(f, "eth1", "10.1.0.1/24", func(l *Link) { l.Mbps = 100000 })
		},
		"a virtual cable's offloads and queue": func(f *Facts) {
			eth0(f).Hardware, eth0(f).Off, eth0(f).Queues = false, []string{"rx-gro"}, 1
		},
		"two interrupts on a CPU":      func(f *Facts) { eth0(f).IRQs = []IRQ{{1, "0"}, {2, "0"}} },
		"interrupts to several CPUs":   func(f *Facts) { eth0(f).IRQs = []IRQ{{1, "0-3"}, {2, "0-3"}, {3, "0-3"}} },
		"a quota of all CPUs":          func(f *Facts) { f.CPU.Quota = 32 },
		"no limit of locked memory":    func(f *Facts) { f.Limits.Locked = -1 },
		"locked memory without RDMA":   func(f *Facts) { f.Devices.RDMA, f.Limits.Locked = nil, 65536 },
		"strict filter, default route": func(f *Facts) { f.Net.RPFilter = 1 },
		"NCCL's list has it":           given("NCCL_SOCKET_IFNAME", "ib,eth"),
		"NCCL's list excludes others":  given("NCCL_SOCKET_IFNAME", "^lo,docker"),
		"gloo's list has it":           given("GLOO_SOCKET_IFNAME", "eth1,eth0"),
		"GOMAXPROCS within":            given("GOMAXPROCS", "8"),
		"a chunk that fits":            given("MCAST_CHUNK", "8928"),
		"a buffer that is allowed":     given("MCAST_RCVBUF", "16M"),
		"AWS that is told version 2":   func(f *Facts) { f.Cloud, f.IGMP.Forced = "Amazon EC2", 2 },
		"old querier, nothing forced":  func(f *Facts) { f.IGMP.Querier.Version = 2 },
		"nobody could listen":          func(f *Facts) { f.IGMP.Querier = Querier{} },
		"multicast off on loopback":    func(f *Facts) { f.Link("lo").Multicast = false },
		"a bridge whose ports take more": func(f *Facts) {
			eth0(f).Below = []string{"p0"}
			f.Links = append(f.Links, Link{Name: "p0", Up: true, MTU: 9216})
		},
		"no kernel known": func(f *Facts) { f.Kernel = Kernel{} },
	} {
		t.Run(name, func(t *testing.T) {
			f := healthy()
			change(&f)
			assert.Empty(t, Diagnose(f))
		})
	}
}

func TestCPUList(t *testing.T) {
	assert.Equal(t, map[int]bool{0: true, 1: true, 5: true}, cpuList("0-1,5"))
	assert.Empty(t, cpuList("x,3-"))
}

func TestWorstFirst(t *testing.T) {
	f := healthy()
	f.Unseen = []Unseen{{What: "routes", Why: "EPERM"}}
	f.Net.RmemMax = 65536
	eth0(&f).Multicast = false
	f.IGMP.MaxMemberships = 0
	r := NewReport(f)
	var names []string
	for _, finding := range r.Findings {
		names = append(names, finding.Name)
	}
	assert.Equal(t, []string{"multicast-off", "no-memberships", "receive-buffer", "not-seen"}, names)
	assert.True(t, r.Healthy)
}

func TestVerdict(t *testing.T) {
	f := healthy()
	assert.Equal(t, "healthy", NewReport(f).Verdict)
	f.Unseen = []Unseen{{What: "routes"}}
	assert.Equal(t, "healthy", NewReport(f).Verdict, "notes are none")
	f.Net.RmemMax = 65536
	r := NewReport(f)
	assert.True(t, r.Healthy, "warnings are no faults")
	assert.Equal(t, "0 faults, 1 warning", r.Verdict)
}

// TestFactsTravel holds that what a host says of itself is the same at another, for a job's hosts
// are diagnosed in one place.
func TestFactsTravel(t *testing.T) {
	f := healthy()
	f.Net.RmemMax = 65536
	r := NewReport(f)
	b, err := json.Marshal(r)
	require.NoError(t, err)
	var got Report
	require.NoError(t, json.Unmarshal(b, &got))
	assert.Equal(t, r, got)
	require.Error(t, json.Unmarshal([]byte(`{"severity":"bad"}`), new(Finding)))
}
