package gpudirect_test

import (
	"fmt"
	"unsafe"

	"github.com/torch-mcast/torch-mcast/pkg/gpudirect"
)

var buffer [100]byte

func ExampleKindOf() {
	fmt.Println(gpudirect.KindOf(unsafe.Pointer(&buffer[0])))
	// Output: host
}

func ExampleCPUAccessible() {
	fmt.Println(gpudirect.CPUAccessible(unsafe.Pointer(&buffer[0]), 100))
	fmt.Println(gpudirect.CPUAccessible(nil, 100) != nil)
	// Output:
	// <nil>
	// true
}

// device stands for a network card that must know memory before it moves it.
type device struct{}

func (device) Register(uintptr, uintptr, gpudirect.Kind) (any, error) { return "key 7", nil }
func (device) Deregister(any) error                                   { fmt.Println("forgotten"); return nil }
func (device) MayOutlive(gpudirect.Kind) bool                         { return true }

func ExampleCache() {
	c := gpudirect.NewCache(device{}, gpudirect.Limits{Count: 64, Bytes: 1 << 30})
	for range 2 {
		r, err := c.Acquire(uintptr(unsafe.Pointer(&buffer[0])), 100, gpudirect.Host)
		fmt.Println(r.Token, err)
		fmt.Println(c.Release(r))
	}
	s := c.Stats()
	fmt.Println(s.Misses, "registered,", s.Hits, "for nothing")
	fmt.Println(c.Close())
	// Output:
	// key 7 <nil>
	// <nil>
	// key 7 <nil>
	// <nil>
	// 1 registered, 1 for nothing
	// forgotten
	// <nil>
}
