package group

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// refusedEnv makes the test binary a rank to which the kernel refuses a system call.
const refusedEnv = "GROUP_TEST_REFUSED"

type refusedRole struct {
	Rank, Size int
	Fabric     string
	Address    string
	Denied     systest.Denial
	Within     bool // the sandbox already
}

// playRefused is a rank.
func playRefused(text string) int {
	var r refusedRole
	err := json.Unmarshal([]byte(text), &r)
	if err == nil && !r.Within {
		err = r.enter()
	}
	if err == nil {
		err = r.play()
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// enter becomes the same program in a sandbox.
func (r refusedRole) enter() error {
	runtime.LockOSThread()
	r.Within = true
	text, err := json.Marshal(&r)
	if err != nil {
		return err
	}
	if err := systest.Enter([]systest.Denial{r.Denied}); err != nil {
		return err
	}
	if err := os.Setenv(refusedEnv, string(text)); err != nil {
		return err
	}
	return unix.Exec("/proc/self/exe", os.Args, os.Environ())
}

func (r refusedRole) play() error {
	s := config.Default()
	s.Fabric, s.JoinTimeout = r.Fabric, systest.Limit
	e, err := Open(Options{Rank: r.Rank, Size: r.Size, Settings: s})
	if err != nil {
		return err
	}
	g, err := e.Meet(context.Background(), r.Address, 0)
	if err != nil {
		return err
	}
	if err := bothKinds(g, r.Rank); err != nil {
		return err
	}
	return g.CloseWithin(time.Second)
}

// refuse runs a job to which a call is refused, and returns what its ranks say, each with "" or why it ended. Of two
// hosts each has half of the ranks; without hosts both ranks are on this one.
func refuse(t *testing.T, hosts []*systest.Namespace, fabric string, denied systest.Denial) (said []string) {
	t.Helper()
	size, at := 2, systest.ReservePort(t).String()
	if hosts != nil {
		size, at = 4, "10.9.0.1:7777" // a port of a host that is new
	}
	said = make([]string, size)
	each(t, size, func(rank int) error {
		text, err := json.Marshal(&refusedRole{Rank: rank, Size: size, Fabric: fabric, Address: at, Denied: denied})
		if err != nil {
			return err
		}
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), refusedEnv+"="+string(text))
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if hosts == nil {
			err = cmd.Start()
		} else {
			hosts[rank/2].Do(func() { err = cmd.Start() })
		}
		if err != nil {
			return err
		}
		if err := cmd.Wait(); err != nil {
			said[rank] = fmt.Sprintf("%v: %s", err, &out)
		}
		return nil
	})
	return said
}

// TestRefusedCalls: what a sandbox may refuse is no condition of joining, over shared memory, over loopback, or over
// both levels of two hosts. Without epoll, eventfd, fcntl and mmap Go itself does not start.
func TestRefusedCalls(t *testing.T) {
	waits(t)
	for name, call := range map[string]uint32{
		"memfd_create": unix.SYS_MEMFD_CREATE, "socketpair": unix.SYS_SOCKETPAIR, "madvise": unix.SYS_MADVISE,
		"mremap":    unix.SYS_MREMAP,
		"fallocate": unix.SYS_FALLOCATE, "sendmmsg": unix.SYS_SENDMMSG, "recvmmsg": unix.SYS_RECVMMSG,
		"pidfd_open":   unix.SYS_PIDFD_OPEN,
		"epoll_pwait2": unix.SYS_EPOLL_PWAIT2, "sched_setaffinity": unix.SYS_SCHED_SETAFFINITY,
		"sched_getaffinity": unix.SYS_SCHED_GETAFFINITY, "prlimit64": unix.SYS_PRLIMIT64, "ftruncate": unix.SYS_FTRUNCATE,
		"timerfd_create": unix.SYS_TIMERFD_CREATE,
	} {
		denied := systest.Denial{Call: call, Errno: unix.EPERM}
		for _, fabric := range []string{"auto", "udp"} {
			t.Run(name+"/"+fabric, func(t *testing.T) { refusedEnds(t, "", refuse(t, nil, fabric, denied)) })
		}
		t.Run(name+"/two levels", func(t *testing.T) {
			hosts := systest.Cable(t, 1500)
			refusedEnds(t, "", refuse(t, hosts[:], "auto", denied))
		})
	}
}

// TestRefusedOptions: a job runs without any one option of its sockets.
func TestRefusedOptions(t *testing.T) {
	waits(t)
	for _, o := range []struct {
		name          string
		level, option uint32
	}{
		{"SO_REUSEADDR", unix.SOL_SOCKET, unix.SO_REUSEADDR}, // Go asks for it by itself
		{"SO_SNDBUF", unix.SOL_SOCKET, unix.SO_SNDBUF},
		{"SO_RCVBUF", unix.SOL_SOCKET, unix.SO_RCVBUF},
		{"SO_RCVBUFFORCE", unix.SOL_SOCKET, unix.SO_RCVBUFFORCE},
		{"SO_KEEPALIVE", unix.SOL_SOCKET, unix.SO_KEEPALIVE},
		{"SO_ATTACH_FILTER", unix.SOL_SOCKET, unix.SO_ATTACH_FILTER},
		{"SO_REUSEPORT", unix.SOL_SOCKET, unix.SO_REUSEPORT},
		{"SO_BINDTODEVICE", unix.SOL_SOCKET, unix.SO_BINDTODEVICE},
		{"SO_BROADCAST", unix.SOL_SOCKET, unix.SO_BROADCAST},
		{"IP_TOS", unix.IPPROTO_IP, unix.IP_TOS},
		{"IP_MTU_DISCOVER", unix.IPPROTO_IP, unix.IP_MTU_DISCOVER},
		{"IP_BIND_ADDRESS_NO_PORT", unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT},
		{"IP_MULTICAST_IF", unix.IPPROTO_IP, unix.IP_MULTICAST_IF},
		{"IP_MULTICAST_TTL", unix.IPPROTO_IP, unix.IP_MULTICAST_TTL},
		{"IP_MULTICAST_LOOP", unix.IPPROTO_IP, unix.IP_MULTICAST_LOOP},
		{"IP_ADD_MEMBERSHIP", unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP},
		{"IP_DROP_MEMBERSHIP", unix.IPPROTO_IP, unix.IP_DROP_MEMBERSHIP},
		{"IP_MULTICAST_ALL", unix.IPPROTO_IP, unix.IP_MULTICAST_ALL},
		{"TCP_NODELAY", unix.IPPROTO_TCP, unix.TCP_NODELAY},
		{"TCP_MAXSEG", unix.IPPROTO_TCP, unix.TCP_MAXSEG},
		{"TCP_KEEPIDLE", unix.IPPROTO_TCP, unix.TCP_KEEPIDLE},
		{"TCP_KEEPINTVL", unix.IPPROTO_TCP, unix.TCP_KEEPINTVL},
		{"TCP_KEEPCNT", unix.IPPROTO_TCP, unix.TCP_KEEPCNT},
		{"TCP_USER_TIMEOUT", unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT},
		{"TCP_RTO_MAX", unix.IPPROTO_TCP, 44},
		{"TCP_RTO_MIN", unix.IPPROTO_TCP, 45},
		{"UDP_SEGMENT", unix.IPPROTO_UDP, unix.UDP_SEGMENT},
		{"UDP_GRO", unix.IPPROTO_UDP, unix.UDP_GRO},
	} {
		denied := systest.Denial{Call: unix.SYS_SETSOCKOPT, With: []systest.Argument{
			{Number: 1, Value: o.level}, {Number: 2, Value: o.option}}}
		ends := ""
		if o.option == unix.SO_REUSEADDR && o.level == unix.SOL_SOCKET {
			ends = "cannot listen for peers: listen tcp" // Go's net asks for it, and does not go on without
		}
		for _, errno := range []unix.Errno{unix.EPERM, unix.ENOPROTOOPT} {
			denied.Errno = errno
			t.Run(o.name+"/"+unix.ErrnoName(errno), func(t *testing.T) { refusedEnds(t, ends, refuse(t, nil, "udp", denied)) })
		}
		t.Run(o.name+"/two levels", func(t *testing.T) {
			hosts := systest.Cable(t, 1500)
			refusedEnds(t, ends, refuse(t, hosts[:], "auto", denied))
		})
	}
}

// refusedEnds tests what each rank said: nothing, or, with ends, that among it.
func refusedEnds(t *testing.T, ends string, said []string) {
	t.Helper()
	for rank, text := range said {
		if ends == "" {
			require.Empty(t, text, "rank %d", rank)
		} else {
			require.Contains(t, text, ends, "rank %d", rank)
		}
	}
}
