//go:build !race

// The shadow of the race detector would be in the core, too, and takes half a minute to look through.

package identity

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/transport/seal"
)

// beDying in the environment has this program make keys and die.
const beDying = "IDENTITY_TEST_DIE"

// evidence is of the program's data, which a core has.
var evidence = [sha256.Size]byte{1}

// TestKeysAreInNoCore: what a process leaves when it dies has neither the secret of its file nor any key.
func TestKeysAreInNoCore(t *testing.T) {
	if os.Getenv(beDying) != "" {
		dieWithKeys(t)
	}
	pattern, err := os.ReadFile("/proc/sys/kernel/core_pattern")
	require.NoError(t, err)
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_CORE, &limit))
	if name := string(pattern); strings.ContainsAny(name, "/|") || !strings.HasPrefix(name, "core") ||
		limit.Max != unix.RLIM_INFINITY {
		t.Skipf("cores of this machine go elsewhere: core_pattern is %s, the limit %d", bytes.TrimSpace(pattern), limit.Max)
	}
	secret, folder := NewSecret(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "secret"), []byte(secret), 0o600))
	died := exec.Command(os.Args[0], "-test.run=^TestKeysAreInNoCore$")
	died.Dir, died.Env = folder,
		append(os.Environ(), beDying+"=1", "MCAST_SECRET=", "MCAST_SECRET_FILE="+filepath.Join(folder, "secret"))
	told, err := died.Output()
	require.ErrorContains(t, err, "core dumped")

	id := of(t, secret)
	seed, err := id.Derive("identity", nil)
	require.NoError(t, err)
	datagrams, err := id.Derive("datagrams", nil)
	require.NoError(t, err)
	sought := map[string][]byte{"the secret": []byte(secret), "the identity's": seed, "of datagrams": datagrams}
	for i, text := range strings.Fields(string(told)) {
		key, err := hex.DecodeString(text)
		require.NoError(t, err)
		sought[fmt.Sprintf("of the connection, %d", i)] = key
	}
	require.Len(t, sought, 5)
	cores, err := filepath.Glob(filepath.Join(folder, "core*"))
	require.NoError(t, err)
	require.Len(t, cores, 1)
	memory := loaded(t, cores[0])
	program := sha256.Sum256(evidence[:1])
	require.True(t, bytes.Contains(memory, program[:]), "the core is of some use")
	for what, key := range sought {
		require.False(t, bytes.Contains(memory, key), "a key is in the core: %s", what)
	}
}

// dieWithKeys makes keys of every kind, tells those of a connection, which are drawn by chance, and leaves a core.
func dieWithKeys(t *testing.T) {
	settings, err := config.Load(os.LookupEnv, nil)
	require.NoError(t, err)
	id := of(t, settings.Secret)
	key, err := id.Derive("datagrams", nil)
	require.NoError(t, err)
	sealer := seal.New(seal.Encryption, key, 1)
	g, other := greet(t, id)
	out, in, err := g.Keys("records", sha256.Size)
	require.NoError(t, err)
	conn, err := g.Follow()
	require.NoError(t, err)
	fmt.Printf("%x %x\n", out, in)

	evidence = sha256.Sum256(evidence[:1])
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}))
	debug.SetTraceback("crash")
	defer runtime.KeepAlive([]any{sealer, other, conn})
	go func() { panic("as it was asked to") }()
	select {}
}

// loaded returns what a core holds of the process's memory, without the registers of its threads.
func loaded(t *testing.T, core string) (memory []byte) {
	t.Helper()
	f, err := elf.Open(core)
	require.NoError(t, err)
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD {
			b, err := io.ReadAll(p.Open())
			require.NoError(t, err)
			memory = append(memory, b...)
		}
	}
	return memory
}
