package team

import (
	"fmt"
	"net/netip"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/torch-mcast/torch-mcast/internal/config"
)

// TestPlanIsAValue: a plan holds neither a pointer to something that others may change, nor a lock, channel or
// function.
func TestPlanIsAValue(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var look func(kind reflect.Type, path string)
	look = func(kind reflect.Type, path string) {
		if seen[kind] || kind.PkgPath() == "net/netip" { // addresses are values, with pointers inside
			return
		}
		seen[kind] = true
		switch kind.Kind() {
		case reflect.Pointer, reflect.UnsafePointer, reflect.Chan, reflect.Func, reflect.Interface, reflect.Map:
			assert.Fail(t, path+" is a "+kind.Kind().String())
		case reflect.Slice, reflect.Array:
			look(kind.Elem(), path+"[]")
		case reflect.Struct:
			assert.NotEqual(t, "sync", kind.PkgPath(), path)
			for i := range kind.NumField() {
				look(kind.Field(i).Type, path+"."+kind.Field(i).Name)
			}
		default:
		}
	}
	look(reflect.TypeFor[Plan](), "Plan")
	assert.Greater(t, len(seen), 10)
}

// TestPlansDoNotChange: what ranks find out later makes another plan and leaves this one.
func TestPlansDoNotChange(t *testing.T) {
	a := &Plan{Hosts: on(0, 0, 1, 1), Size: 4, Settings: config.Default(), Ports: make([]uint16, 4), Ways: make([]Way, 2)}
	a.layOut()
	for i := range a.Ways {
		for r := range a.Size {
			a.Ways[i].Addrs = append(a.Ways[i].Addrs, netip.AddrFrom4([4]byte{10, 0, byte(i), byte(r)}))
		}
	}
	a.takeWay(0)
	before := fmt.Sprintf("%#v", *a)
	for _, b := range []*Plan{a.ByWay(1), a.Flat("none"), a.OnNextPort(), a.Over("udp", "for a test"),
		a.OnPaths(1400, 1300)} {
		assert.NotEqual(t, before, fmt.Sprintf("%#v", *b))
		assert.Equal(t, before, fmt.Sprintf("%#v", *a))
	}
}
