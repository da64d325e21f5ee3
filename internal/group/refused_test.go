package group

import (
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
	Rank    int
	Fabric  string
	Address string
	Call    uint32
	Errno   unix.Errno
	Within  bool // the sandbox already
}

// playRefused is a rank of two.
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
	if err := systest.Enter([]systest.Denial{{Call: r.Call, Errno: r.Errno}}); err != nil {
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
	e, err := Open(Options{Rank: r.Rank, Size: 2, Settings: s})
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

// TestRefusedCalls: what a sandbox may refuse is no condition of joining, over shared memory or over loopback. Without epoll,
// eventfd, fcntl and mmap Go itself does not start.
func TestRefusedCalls(t *testing.T) {
	waits(t)
	for name, call := range map[string]uint32{
		"memfd_create": unix.SYS_MEMFD_CREATE, "socketpair": unix.SYS_SOCKETPAIR, "madvise": unix.SYS_MADVISE, "mremap": unix.SYS_MREMAP,
		"fallocate": unix.SYS_FALLOCATE, "sendmmsg": unix.SYS_SENDMMSG, "recvmmsg": unix.SYS_RECVMMSG, "pidfd_open": unix.SYS_PIDFD_OPEN,
		"epoll_pwait2": unix.SYS_EPOLL_PWAIT2, "sched_setaffinity": unix.SYS_SCHED_SETAFFINITY,
		"sched_getaffinity": unix.SYS_SCHED_GETAFFINITY, "prlimit64": unix.SYS_PRLIMIT64, "ftruncate": unix.SYS_FTRUNCATE,
		"timerfd_create": unix.SYS_TIMERFD_CREATE,
	} {
		for _, fabric := range []string{"auto", "udp"} {
			t.Run(name+"/"+fabric, func(t *testing.T) {
				at := systest.ReservePort(t).String()
				each(t, 2, func(rank int) error {
					text, err := json.Marshal(&refusedRole{Rank: rank, Fabric: fabric, Address: at, Call: call, Errno: unix.EPERM})
					if err != nil {
						return err
					}
					cmd := exec.Command(os.Args[0])
					cmd.Env = append(os.Environ(), refusedEnv+"="+string(text))
					out, err := cmd.CombinedOutput()
					require.NoError(t, err, "%s", out)
					return nil
				})
			})
		}
	}
}
