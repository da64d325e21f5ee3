package systest

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// How quiet a machine must be to judge speed, and how long a test waits for that.
const (
	probeTime  = time.Second
	nap        = time.Millisecond
	lateness   = 5 * time.Millisecond // that 99 of 100 naps stay below
	othersTake = 0.1                  // of the processors, while a try runs
	tries      = 5
	quietTries = 30 // of a second each
)

// Undisturbed makes tries of something that judges speed until one finds nothing wrong. It waits for
// a quiet machine before each. A try that was wrong is made again if others had a tenth of the
// processors meanwhile, and fails the test if not. Where the machine does not get quiet the test
// fails in CI and is skipped elsewhere.
func Undisturbed(t testing.TB, try func() (wrong string)) {
	t.Helper()
	m := machine{napLate, func() usage { return use(t) }, t.Logf}
	wrong, disturbed := m.judge(try)
	require.Empty(t, wrong)
	switch {
	case disturbed == "":
	case os.Getenv("CI") == "true":
		t.Fatal(disturbed)
	default:
		t.Skip(disturbed)
	}
}

// Wrong runs f, as a test runs, and returns the failures that it found.
func Wrong(f func(t require.TestingT)) string {
	r := &recorder{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(r)
	}()
	<-done
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.said, "\n")
}

// recorder is a test that goes on.
type recorder struct {
	mu   sync.Mutex
	said []string
}

// Errorf notes a failure.
func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = append(r.said, fmt.Sprintf(format, args...))
}

// FailNow ends the goroutine of Wrong.
func (r *recorder) FailNow() { runtime.Goexit() }

// machine is where tries are made.
type machine struct {
	late func() time.Duration
	use  func() usage
	say  func(format string, args ...any)
}

// judge makes tries. It returns the failure of the first try that nothing disturbed, or else the
// disturbances of all tries.
func (m *machine) judge(try func() string) (wrong, disturbed string) {
	for range tries {
		if late := m.quiet(); late >= lateness {
			return "", fmt.Sprintf("this machine wakes who sleeps %v too late, for %v now: want one that does nothing else",
				late, quietTries*probeTime)
		}
		before := m.use()
		said := try()
		if said == "" {
			return "", ""
		}
		others := m.use().since(before)
		if others < othersTake {
			return said, ""
		}
		m.say("others had %.0f %% of the processors, so it is tried again: %s", 100*others, said)
	}
	return "", fmt.Sprintf("others disturbed each of %d tries: want a machine that does nothing else", tries)
}

// quiet waits until the machine wakes a sleeper on time, and returns how late it does.
func (m *machine) quiet() (late time.Duration) {
	for range quietTries {
		if late = m.late(); late < lateness {
			break
		}
	}
	return late
}

// napLate returns how late 99 of 100 naps of a second end at most.
func napLate() time.Duration {
	var all []time.Duration
	for end := time.Now().Add(probeTime); time.Now().Before(end); {
		begin := time.Now()
		time.Sleep(nap)
		all = append(all, time.Since(begin)-nap)
	}
	slices.Sort(all)
	return all[len(all)*99/100]
}

// usage is what processors have done so far.
type usage struct {
	at        time.Time
	all, ours time.Duration // for programs, not for interrupts; taken away by a hypervisor counts
}

func use(t testing.TB) usage {
	t.Helper()
	text, err := os.ReadFile("/proc/stat")
	require.NoError(t, err)
	u := usage{at: time.Now()}
	first, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(first) // cpu user nice system idle iowait irq softirq steal
	require.Greater(t, len(fields), 8, first)
	for _, i := range []int{1, 2, 3, 8} {
		ticks, err := strconv.ParseInt(fields[i], 10, 64)
		require.NoError(t, err)
		u.all += time.Duration(ticks) * (time.Second / 100)
	}
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var r unix.Rusage
		require.NoError(t, unix.Getrusage(who, &r))
		u.ours += time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	return u
}

// since returns which share of all processors others had.
func (u usage) since(before usage) float64 {
	others := u.all - before.all - (u.ours - before.ours)
	return others.Seconds() / u.at.Sub(before.at).Seconds() / float64(runtime.NumCPU())
}
