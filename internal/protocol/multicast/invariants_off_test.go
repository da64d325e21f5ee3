//go:build !invariants

package multicast

import "testing"

// thorough does nothing without the build tag: see invariants_test.go.
func thorough(testing.TB) {}
