package cli

import (
	"fmt"
	"strings"

	"github.com/torch-mcast/torch-mcast/internal/config"
)

// Sizes reads the list that --bytes is: of N or N:M, which is N, N*step, ... up to M. step is --step.
func Sizes(text string, step int) ([]int, error) {
	if step < 2 {
		return nil, config.Mistakef("--step=%d is not allowed: want at least 2", step)
	}
	var all []int
	for _, part := range strings.Split(text, ",") {
		first, last, ranged := strings.Cut(part, ":")
		if !ranged {
			last = first
		}
		lo, err := config.ParseBytes(first)
		if err != nil {
			return nil, config.Mistakef("--bytes: %w", err)
		}
		hi, err := config.ParseBytes(last)
		if err != nil {
			return nil, config.Mistakef("--bytes: %w", err)
		}
		if ranged && (lo < 1 || hi < lo) {
			return nil, config.Mistakef("--bytes=%s is not a range: want N:M with 0 < N <= M", part)
		}
		all = append(all, lo)
		for n := lo; n > 0 && n <= hi/step; { // n*step does not overflow
			n *= step
			all = append(all, n)
		}
	}
	return all, nil
}

// BytesText writes a size with three digits or more.
func BytesText(n uint64) string {
	for _, u := range []struct {
		name string
		size float64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if float64(n) >= u.size {
			return fmt.Sprintf("%.2f %s", float64(n)/u.size, u.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}
