package reduce

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/klauspost/cpuid/v2"
)

// Level is the instruction set of the kernels that do the work.
type Level uint8

// The levels, slowest first.
const (
	Generic Level = iota // plain Go, on every architecture
	AVX2                 // AVX2 and F16C
	AVX512               // AVX-512 F, BW, DQ and VL
	numLevels
)

var levelNames = [numLevels]string{"generic", "avx2", "avx512"}

// needs are the features of the processor that a level uses. cpuid reports
// them only if the operating system saves the registers as well.
var needs = [numLevels][]cpuid.FeatureID{
	AVX2:   {cpuid.AVX2, cpuid.F16C},
	AVX512: {cpuid.AVX512F, cpuid.AVX512BW, cpuid.AVX512DQ, cpuid.AVX512VL},
}

// kernel combines bytes from to to of every source into the same bytes of dst, or takes a step with
// the only source. scalar holds the factor or the divisor in the accumulate type (see operand).
type kernel func(dst []byte, srcs [][]byte, from, to int, scalar uint64)

// table holds kernels by position of the type and operation; nil where the
// level has none.
type table [numTypes][numOps]kernel

// step is a step of a reduction (see partial.go) that converts. Its kernels count in bytes of
// contributions, and take multiples of the bytes that give a vector of a partial result.
type step uint8

const (
	begin step = iota
	next
	finish
	numSteps
)

// engine is a level in use. Where it has no kernel, plain Go does the work.
type engine struct {
	level   Level
	vector  int    // bytes
	kernels *table // take multiples of a vector
	streams *table // take multiples of 8 vectors, aligned to one in dst, and store around the caches
	steps   *[numSteps]table
}

// active is the engine of all sums of this process. asked is the one that Ask was last called for, or nil.
var active, asked atomic.Pointer[engine]

// asking keeps two calls of Ask apart.
var asking sync.Mutex

func init() {
	active.Store(&engines[best()])
}

// String returns the name that ParseLevel takes.
func (l Level) String() string {
	if l >= numLevels {
		return fmt.Sprintf("level(%d)", uint8(l))
	}
	return levelNames[l]
}

// ParseLevel returns the level of that name: generic, avx2, avx512, or auto
// for the best one of this machine. Whether the machine has it, Use says.
func ParseLevel(name string) (Level, error) {
	if name == "auto" {
		return best(), nil
	}
	for i, n := range levelNames {
		if n == name {
			return Level(i), nil
		}
	}
	return 0, fmt.Errorf("reduce: unknown SIMD level %q; want auto, %s", name, strings.Join(levelNames[:], ", "))
}

// Levels returns the levels that work here, slowest first. Generic always does.
func Levels() []Level { return levels(cpuid.CPU.Supports) }

// levels returns the levels that this architecture has kernels for and that need no more than the
// features that has reports.
func levels(has func(...cpuid.FeatureID) bool) []Level {
	found := []Level{Generic}
	for l := AVX2; l < numLevels; l++ {
		if engines[l].kernels != nil && has(needs[l]...) {
			found = append(found, l)
		}
	}
	return found
}

// best returns the fastest level that works here.
func best() Level {
	here := Levels()
	return here[len(here)-1]
}

// Ask is Use for a group, which shares the level with the other groups of its process. It returns the level
// that the group before asked for, or l for the first group.
func Ask(l Level) (before Level, err error) {
	asking.Lock()
	defer asking.Unlock()
	if err := Use(l); err != nil {
		return l, err
	}
	if was := asked.Swap(&engines[l]); was != nil {
		return was.level, nil
	}
	return l, nil
}

// Use makes Fold use the kernels of level l from its next call on. All levels
// give the same bits; a lower one serves tests and measurements.
func Use(l Level) error {
	var names []string
	for _, here := range Levels() {
		if here == l {
			active.Store(&engines[l])
			return nil
		}
		names = append(names, here.String())
	}
	return fmt.Errorf("reduce: this machine has no SIMD level %v; it has %s", l, strings.Join(names, ", "))
}

// Active returns the level that Fold uses.
func Active() Level { return active.Load().level }
