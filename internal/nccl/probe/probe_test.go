package probe

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/nccl/nccltest"
)

const beChild = "PROBE_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(beChild) != "" {
		if err := Child(os.Stdout, os.Args[len(os.Args)-1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func loader(vars ...string) Loader {
	return Loader{
		Command: []string{os.Args[0]}, Env: append([]string{beChild + "=1", "GORACE=atexit_sleep_ms=0"}, vars...),
	}
}

func TestVersion(t *testing.T) {
	for v, text := range map[Version]string{23007: "2.30.7", 22005: "2.20.5", 2804: "2.8.4"} {
		require.Equal(t, text, v.String())
	}
	require.Equal(t, Version(23007), Of(2, 30, 7))
	require.Equal(t, Version(2804), Of(2, 8, 4))
	require.Less(t, Of(2, 8, 4), Of(2, 20, 5))
}

func TestNCCL(t *testing.T) {
	dir := t.TempDir()
	path := nccltest.NCCL(t, dir, 23007, "ncclNetPlugin_v12", "ncclNetPlugin_v9", "ncclCollNetPlugin_v11",
		"no ncclTunerPlugin_v4 symbol", "ncclProfiler_v7")
	found := loader().Load(t.Context(), path)
	require.Equal(t, Library{Path: path, NCCL: 23007}, found)
	wants, err := Wanted(path)
	require.NoError(t, err)
	require.Equal(t, Tables{Net: []int{9, 12}, CollNet: []int{11}, Tuner: []int{4}, Profiler: []int{7}}, wants)

	byName := loader("LD_LIBRARY_PATH="+dir).Load(t.Context(), "libnccl.so.2")
	require.Equal(t, path, byName.Path, "the loader's search is the one that counts")
	require.Contains(t, loader("LD_LIBRARY_PATH="+t.TempDir()).Load(t.Context(), "libnccl-net-no.so").Error,
		"No such file")
}

func TestPlugin(t *testing.T) {
	path := nccltest.Plugin{
		Name: "mcast", Devices: []string{"eth0", "eth1"}, Paths: []string{"/sys/a", "/sys/b"}, CollNet: 1,
		Tables: []string{
			"ncclNetPlugin_v9", "ncclNetPlugin_v11", "ncclTunerPlugin_v10", "ncclProfiler_v5", "notncclNetPlugin_v3",
		},
	}.Library(t, filepath.Join(t.TempDir(), "libnccl-net-x.so"))
	found := loader().Load(t.Context(), path)
	require.Equal(t, Library{
		Path:    path,
		Net:     &Offer{Name: "mcast", Devices: []Device{{"eth0", "/sys/a", 10000}, {"eth1", "/sys/b", 10000}}},
		CollNet: &Offer{Name: "mcast", Devices: []Device{{"eth0", "/sys/a", 10000}}},
	}, found)
	has, err := Exported(path)
	require.NoError(t, err)
	require.Equal(t, Tables{Net: []int{8, 9, 11}, CollNet: []int{8}, Tuner: []int{10}, Profiler: []int{5}}, has)
	require.Equal(t, "net v8 to v9, v11, CollNet v8, tuner v10, profiler v5", has.String())
	require.Contains(t, Tables{Net: []int{8}}.String(), "tuner none, profiler none")
	require.Equal(t, 11, Meet(has.Net, []int{7, 8, 11, 12}))
	require.Zero(t, Meet(has.Net, []int{12}))
}

// What keeps a library from being used is told, and never harms who asks.
func TestBroken(t *testing.T) {
	dir := t.TempDir()
	failing := nccltest.Plugin{Name: "mcast", Fails: "MCAST_X=1 is not allowed"}.Library(t,
		filepath.Join(dir, "failing.so"))
	found := loader().Load(t.Context(), failing)
	require.Equal(t, "init: error 3", found.Net.Error)
	require.Equal(t, "MCAST_X=1 is not allowed", found.Log[0])

	needing := nccltest.Plugin{Name: "mcast", Needs: "nobody_has_this"}.Library(t, filepath.Join(dir, "needing.so"))
	require.Contains(t, loader().Load(t.Context(), needing).Error, "undefined symbol: nobody_has_this")

	crashing := loader().Load(t.Context(), nccltest.Crashing(t, filepath.Join(dir, "crashing.so")))
	require.Equal(t, "loading it ended the process: SIGSEGV", crashing.Error)
	require.Empty(t, crashing.Path)

	text := filepath.Join(dir, "text.so")
	require.NoError(t, os.WriteFile(text, []byte("no library"), 0o644))
	_, err := Exported(text)
	require.Error(t, err)
	_, err = Wanted(text)
	require.Error(t, err)
}
