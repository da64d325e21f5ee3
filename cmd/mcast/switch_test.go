package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/session"
	"github.com/torch-mcast/torch-mcast/internal/switchd/switchtest"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// ended follows the last line of a process.
const ended = "\x00"

// lines makes lines that a process writes available as they come.
type lines struct {
	found chan string
	seen  []string
}

func scan(r io.ReadCloser) *lines {
	l := &lines{found: make(chan string, 1000)}
	go func() {
		for s := bufio.NewScanner(r); s.Scan(); {
			l.found <- s.Text()
		}
		l.found <- ended
		_ = r.Close()
	}()
	return l
}

// match waits for a line and returns what its first group matches.
func (l *lines) match(t *testing.T, pattern string) string {
	t.Helper()
	for {
		line := systest.Receive(t, l.found, "no line matches %s; until now: %q", pattern, l.seen)
		require.NotEqual(t, ended, line, "no line matches %s; all that was said: %q", pattern, l.seen)
		l.seen = append(l.seen, line)
		if m := regexp.MustCompile(pattern).FindStringSubmatch(line); m != nil {
			return m[1]
		}
	}
}

// process is a running mcast.
type process struct {
	out, err *lines
	signal   func(os.Signal) error
	exited   chan error
}

func runSwitch(t *testing.T, vars []string, args ...string) *process {
	t.Helper()
	return background(t, vars, append([]string{"switch", "--bind", "127.0.0.1:0"}, args...)...)
}

// background starts a mcast that runs until a signal.
func background(t *testing.T, vars []string, args ...string) *process {
	t.Helper()
	cmd, _, _ := mcast(t, vars, args...)
	stdout, out, err := os.Pipe() // Wait would close a pipe of exec's with lines in it
	require.NoError(t, err)
	stderr, errs, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stdout, cmd.Stderr = out, errs
	require.NoError(t, cmd.Start())
	require.NoError(t, errors.Join(out.Close(), errs.Close()))
	p := &process{scan(stdout), scan(stderr), cmd.Process.Signal, make(chan error, 1)}
	go func() { p.exited <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return p
}

func (p *process) wait(t *testing.T) error {
	t.Helper()
	return systest.Receive(t, p.exited, "it goes on")
}

func get(t *testing.T, client *http.Client, url string) (status int, body string) {
	t.Helper()
	r, err := client.Get(url)
	require.NoError(t, err)
	defer func() { _ = r.Body.Close() }()
	text, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return r.StatusCode, string(text)
}

func TestSwitch(t *testing.T) {
	file := filepath.Join(t.TempDir(), "switch.json")
	require.NoError(t, os.WriteFile(file,
		[]byte(`{"workers": 2, "memory": 67108864, "rate": "10gbit", "drain-timeout": "50s", "json": true}`), 0o600))
	p := runSwitch(t, []string{"MCAST_SECRET=correct-horse-battery-staple"}, "--config", file, "--http", "127.0.0.1:0")
	addr := p.out.match(t, `^listening on (.*)$`)
	metrics := p.err.match(t, `"url":"(https:[^"]*)"`)
	scraper := prometheusOf(t, "correct-horse-battery-staple")

	rank, err := switchtest.Join(t.Context(), addr,
		session.Hello{Job: 1, Ranks: 1, Secret: "correct-horse-battery-staple", Timeout: systest.Limit})
	require.NoError(t, err)
	defer func() { _ = rank.Close() }()
	require.Equal(t, 2, rank.Terms.Stripes)
	send, recv := bytes.Repeat([]byte("some"), 50_000), make([]byte, 200_000)
	require.NoError(t, rank.ReduceScatter(t.Context(), collective.Op{Count: 50_000, Type: reduce.I32}, send, recv))
	require.NoError(t, switchtest.Equal(send, recv))

	systest.Eventually(t, func() bool {
		status, text := get(t, scraper, metrics)
		require.Equal(t, http.StatusOK, status)
		return strings.Contains(text, "mcast_switch_jobs 1") &&
			regexp.MustCompile(`(?m)^mcast_switch_summed_bytes_total\{worker="1"\} [1-9]`).MatchString(text)
	})
	health := strings.TrimSuffix(metrics, "metrics") + "healthz"
	// as who probes it does, without a secret
	status, _ := get(t, http.DefaultClient, strings.Replace(health, "https", "http", 1))
	require.Equal(t, http.StatusOK, status)
	status, _ = get(t, http.DefaultClient, strings.Replace(metrics, "https", "http", 1))
	require.Equal(t, http.StatusUnauthorized, status)

	require.NoError(t, p.signal(syscall.SIGTERM))
	<-rank.Session.Lost()
	require.ErrorIs(t, rank.Session.Err(), session.ErrDraining)
	status, _ = get(t, scraper, health)
	require.Equal(t, http.StatusServiceUnavailable, status)
	_, err = session.Dial(t.Context(), addr, session.Hello{Job: 2, Ranks: 1, Secret: "correct-horse-battery-staple"})
	require.ErrorContains(t, err, "drains")
	require.NoError(t, rank.Close())
	require.NoError(t, p.wait(t))
}

// TestSystemdHearsOfTheSwitch: a unit of Type=notify is up once members can join, and no sooner.
func TestSystemdHearsOfTheSwitch(t *testing.T) {
	path := filepath.Join(systest.ShortDir(t), "notify")
	systemd, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	defer func() { _ = systemd.Close() }()
	require.NoError(t, systemd.SetReadDeadline(systest.Deadline()))
	heard := func() string {
		b := make([]byte, 100)
		n, err := systemd.Read(b)
		require.NoError(t, err)
		return string(b[:n])
	}
	p := runSwitch(t, []string{"NOTIFY_SOCKET=" + path})
	require.Equal(t, "READY=1", heard())
	s, err := session.Dial(t.Context(), p.out.match(t, `^listening on (.*)$`),
		session.Hello{Job: 1, Ranks: 1, Timeout: systest.Limit})
	require.NoError(t, err)
	require.NoError(t, s.Close(nil))
	require.NoError(t, p.signal(syscall.SIGTERM))
	require.Equal(t, "STOPPING=1", heard())
	require.NoError(t, p.wait(t))
}

func TestASecondSignalEndsTheSwitch(t *testing.T) {
	p := runSwitch(t, nil)
	addr := p.out.match(t, `^listening on (.*)$`)
	s, err := session.Dial(t.Context(), addr, session.Hello{Job: 1, Ranks: 2, Timeout: systest.Limit})
	require.NoError(t, err)
	defer func() { _ = s.Close(nil) }()
	stranger, err := net.Dial("tcp", addr) // and says nothing
	require.NoError(t, err)
	defer func() { _ = stranger.Close() }()
	require.NoError(t, p.signal(syscall.SIGTERM))
	<-s.Lost() // it drains
	require.NoError(t, p.signal(syscall.SIGTERM))
	require.Error(t, p.wait(t))
}

// listening is an address that has a listener until the test ends.
func listening(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	return ln.Addr().String()
}

func TestSwitchReportsBadInput(t *testing.T) {
	dir := t.TempDir()
	file := func(text string) string {
		f, err := os.CreateTemp(dir, "")
		require.NoError(t, err)
		_, err = f.WriteString(text)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		return f.Name()
	}
	// A later --bind counts.
	for want, args := range map[string][]string{
		`"7" is no rate`:              {"--rate", "7"},
		`"9-2" is no range of ports`:  {"--data-ports", "9-2"},
		`"much"`:                      {"--memory", "much"},
		`"bnd" is no flag`:            {"--config", file(`{"bnd": "x"}`)},
		"want a JSON object":          {"--config", file(`bind: x`)},
		"line 1: a secret of 5 bytes": {"--secrets", file("short")},
		"no-such-file":                {"--secrets", filepath.Join(dir, "no-such-file")},
		"--workers=65":                {"--workers", "65"},
		`--parent="x" is not allowed`: {"--parent", "x"},
		`--http="9" is not allowed`:   {"--http", "9"},
		`--bind="x" is not allowed`:   {"--bind", "x"},
		"--jobs=-5":                   {"--jobs=-5", "--members", "7"},
		"want at most as much":        {"--memory", "1M", "--job-memory", "2M"},
		"leaves a job 62":             {"--memory", "1000"},
		`--rate=unlimited`:            {"--rate", "unlimited"},
		"takes another port":          {"--bind", listening(t)},
	} {
		cmd, _, stderr := mcast(t, nil, append([]string{"switch", "--bind", "127.0.0.1:0"}, args...)...)
		require.Error(t, cmd.Run())
		require.Contains(t, stderr.String(), want)
	}
}

// TestSwitchOfTenants: what --http serves is of all of them, so it is for who knows the switch's own secret, and
// without one there is none.
func TestSwitchOfTenants(t *testing.T) {
	const tenant, own = "the-secret-of-a-tenant-of-it", "the-secret-of-the-switch-itself"
	file := filepath.Join(t.TempDir(), "secrets")
	require.NoError(t, os.WriteFile(file, []byte("one "+tenant+"\n"), 0o600))
	cmd, _, stderr := mcast(t, nil, "switch", "--bind", "127.0.0.1:0", "--secrets", file, "--http", "127.0.0.1:0")
	require.Error(t, cmd.Run())
	require.Contains(t, stderr.String(), "--http with --secrets takes MCAST_SECRET or MCAST_SECRET_FILE")

	// of the ranks
	for _, of := range []string{"MCAST_SECRET=store", "MCAST_SECRET_FILE=" + filepath.Join(t.TempDir(), "none")} {
		p := runSwitch(t, []string{of}, "--secrets", file)
		p.out.match(t, `^listening on (.*)$`)
		require.NoError(t, p.signal(syscall.SIGTERM))
		require.NoError(t, p.wait(t))
	}

	p := runSwitch(t, []string{"MCAST_SECRET=" + own}, "--secrets", file, "--http", "127.0.0.1:0")
	metrics := p.err.match(t, `url=(https:\S*)`)
	at := p.out.match(t, `^listening on (.*)$`)
	status, text := get(t, prometheusOf(t, own), metrics)
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, text, "mcast_switch_jobs 0")
	trusting := shown(t, tenant)
	trusting.InsecureSkipVerify = true
	status, _ = get(t, clientOf(trusting), metrics)
	require.Equal(t, http.StatusUnauthorized, status)
	_, err := session.Dial(t.Context(), at, session.Hello{Job: 1, Ranks: 1, Secret: own})
	require.ErrorContains(t, err, "the switch does not know this secret")
	s, err := session.Dial(t.Context(), at, session.Hello{Job: 1, Ranks: 1, Secret: tenant, Timeout: systest.Limit})
	require.NoError(t, err)
	require.NoError(t, s.Close(nil))
	require.NoError(t, p.signal(syscall.SIGTERM))
	require.NoError(t, p.wait(t))
}

func TestSwitchWarnsWhenOpenToAll(t *testing.T) {
	p := runSwitch(t, nil, "--bind", "0.0.0.0:0", "--http", "0.0.0.0:0")
	p.err.match(t, `(everybody who reaches this address) may use the switch`)
	p.err.match(t, `(everybody who reaches this address) may read the metrics; see MCAST_SECRET" http=0.0.0.0:0`)
	p.out.match(t, `^listening on (.*)$`)
	require.NoError(t, p.signal(syscall.SIGTERM))
	require.NoError(t, p.wait(t))
}

func TestSwitchChecksTheSecretOfItsEnvironment(t *testing.T) {
	for secret, want := range map[string]string{
		"seven77":                      "MCAST_SECRET: a secret of 7 bytes; want at least 22",
		"correct horse battery staple": "MCAST_SECRET: a secret with white space",
	} {
		cmd, _, stderr := mcast(t, []string{"MCAST_SECRET=" + secret}, "switch", "--bind", "127.0.0.1:0")
		require.Error(t, cmd.Run())
		require.Contains(t, stderr.String(), want)
		require.NotContains(t, stderr.String(), secret)
	}
}

// TestSwitchTakesTheSecretOfAFile: who names one of these does not get a switch that admits everybody.
func TestSwitchTakesTheSecretOfAFile(t *testing.T) {
	const secret = "correct-horse-battery-staple"
	folder := t.TempDir()
	file := filepath.Join(folder, "job")
	require.NoError(t, os.WriteFile(file, []byte(secret+"\n"), 0o600))
	for _, vars := range [][]string{{"MCAST_SECRET_FILE=" + file},
		{"MCAST_SECRET_FILE=job", "CREDENTIALS_DIRECTORY=" + folder}} {
		p := runSwitch(t, vars)
		addr := p.out.match(t, `^listening on (.*)$`)
		_, err := session.Dial(t.Context(), addr, session.Hello{Job: 1, Ranks: 1})
		require.ErrorContains(t, err, "it admits only members with a secret")
		s, err := session.Dial(t.Context(), addr, session.Hello{Job: 1, Ranks: 1, Secret: secret, Timeout: systest.Limit})
		require.NoError(t, err)
		require.NoError(t, s.Close(nil))
		require.NoError(t, p.signal(syscall.SIGTERM))
		require.NoError(t, p.wait(t))
	}
	cmd, _, stderr := mcast(t, []string{"MCAST_SECRET_FILE=" + file + "0"}, "switch", "--bind", "127.0.0.1:0")
	require.Error(t, cmd.Run())
	require.Contains(t, stderr.String(), "no such file")
}
