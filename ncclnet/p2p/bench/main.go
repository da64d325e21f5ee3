// Command bench compares the net side's data path with bare TCP: two processes
// on this host, all kinds in turn in one run, medians.
//
//	go run ./ncclnet/p2p/bench [-lanes 4] [-repeat 5]
package main

// #cgo CFLAGS: -std=gnu11 -D_GNU_SOURCE -O2 -Wall -Wextra -Wshadow -I${SRCDIR}/..
// #include <stdlib.h>
// #include "loop.h"
import "C"

import (
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/ncclnet/p2p"
)

var (
	lanes  = flag.Int("lanes", 4, "sockets of a connection")
	repeat = flag.Int("repeat", 5, "runs; the median counts")
	cut    = flag.Int("cut", 0, "bytes from which a message uses all lanes")
	ring   = flag.Int("ring", 0, "bytes of shared memory")
	buffer = flag.Int("buffer", 0, "bytes of each socket's buffers")
	zero   = flag.String("zerocopy", "auto", "auto, on or off")
	window = flag.Int("window", 8, "messages in flight")
	amount = flag.Int("amount", 256, "MiB a bandwidth run")
	trips  = flag.Int("trips", 4000, "round trips a latency run")
	rank   = flag.Float64("quantile", 0.5, "of the runs that counts; low on a machine that others use")
	sizes  = flag.String("sizes", "1024,16384,65536,131072,262144,524288,1048576,4194304,16777216,67108864",
		"bytes of messages, comma separated")
	child = flag.Bool("child", false, "be the other process")
)

// link moves messages in both directions.
type link interface {
	send(b []byte, size, count, window int) C.int
	recv(b []byte, size, count, window int) C.int
}

type comms struct{ out, in unsafe.Pointer }

func (c comms) send(b []byte, size, count, window int) C.int {
	return C.bench_send((*C.struct_p2p_comm)(c.out), (*C.char)(unsafe.Pointer(&b[0])), C.size_t(size), C.int(count),
		C.int(window))
}

func (c comms) recv(b []byte, size, count, window int) C.int {
	return C.bench_recv((*C.struct_p2p_comm)(c.in), (*C.char)(unsafe.Pointer(&b[0])), C.size_t(size), C.int(count),
		C.int(window))
}

// bare is plain sockets; small messages go over the first.
type bare []C.int

func (f bare) lanes(size int) C.int {
	if size < 256<<10 {
		return 1
	}
	return C.int(len(f))
}

func (f bare) send(b []byte, size, count, window int) C.int {
	return C.bare_send(&f[0], f.lanes(size), (*C.char)(unsafe.Pointer(&b[0])), C.size_t(size), C.int(count), C.int(window))
}

func (f bare) recv(b []byte, size, count, window int) C.int {
	return C.bare_recv(&f[0], f.lanes(size), (*C.char)(unsafe.Pointer(&b[0])), C.size_t(size), C.int(count), C.int(window))
}

func check(rc C.int) {
	if rc != 0 {
		log.Fatal("a transfer failed")
	}
}

// turn times count messages of a size one way, or, with ping, forth and back.
func turn(l link, b []byte, size, count int, ping bool) time.Duration {
	start := time.Now()
	for i := 0; ping && i < count; i++ {
		if *child {
			check(l.recv(b, size, 1, 1))
			check(l.send(b, size, 1, 1))
		} else {
			check(l.send(b, size, 1, 1))
			check(l.recv(b, size, 1, 1))
		}
	}
	if !ping && *child {
		check(l.recv(b, size, count, *window))
		check(l.send(b, 8, 1, 1))
	} else if !ping {
		check(l.send(b, size, count, *window))
		check(l.recv(b, 8, 1, 1))
	}
	return time.Since(start)
}

func main() {
	flag.Parse()
	log.SetFlags(0)
	runtime.LockOSThread()
	r, w := io.Reader(os.Stdin), io.Writer(os.Stdout)
	if !*child {
		cmd := exec.Command("/proc/self/exe", append([]string{"-child"}, os.Args[1:]...)...)
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			log.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			log.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			log.Fatal(err)
		}
		defer cmd.Wait() //nolint:errcheck // it told us everything
		r, w = out, in
	}
	names := []string{"bare", "tcp", "shm"}
	links := []link{connectBare(r, w), connect(r, w, "tcp"), connect(r, w, "shm")}
	room := *window * (64 << 20)
	b := unsafe.Slice((*byte)(C.calloc(1, C.size_t(room))), room)
	for i := range b {
		b[i] = byte(i)
	}
	for _, size := range []int{8, 1 << 10, 16 << 10} {
		if *trips == 0 {
			break
		}
		measure(names, links, b, size, *trips, true)
	}
	for _, size := range ints(*sizes) {
		measure(names, links, b, size, max(4, min(*amount<<20/size, 5000)), false)
	}
}

// measure prints one line: each kind's time, and its ratio to the first's.
func measure(names []string, links []link, b []byte, size, count int, ping bool) {
	all := make([][]time.Duration, len(links))
	for range *repeat {
		for i, l := range links {
			all[i] = append(all[i], turn(l, b, size, count, ping))
		}
	}
	if *child {
		return
	}
	var first float64
	line := fmt.Sprintf("%9d bytes", size)
	for i, times := range all {
		slices.Sort(times)
		mid := times[int(*rank*float64(len(times)))].Seconds() / float64(count)
		v, unit := float64(size)/mid/1e9, "GB/s"
		if ping {
			v, unit = mid/2*1e6, "us"
		}
		if i == 0 {
			first = v
		}
		line += fmt.Sprintf("   %s %7.2f %s (%.2f)", names[i], v, unit, v/first)
	}
	fmt.Println(line)
}

func connect(r io.Reader, w io.Writer, fabric string) link {
	o := p2p.Options{
		Addr: netip.MustParseAddr("127.0.0.1"), Lanes: *lanes, Cut: *cut, Ring: *ring, Buffer: *buffer, Zerocopy: *zero,
		Fabric: fabric,
	}
	l, err := p2p.Listen(o)
	if err != nil {
		log.Fatal(err)
	}
	h := make([]byte, p2p.HandleSize)
	l.Handle(h)
	theirs := swap(r, w, h)
	var c comms
	for c.in == nil || c.out == nil {
		if c.in == nil {
			if c.in, err = l.Accept(); err != nil {
				log.Fatal(err)
			}
		}
		if c.out == nil {
			if c.out, err = p2p.Connect(theirs, o); err != nil {
				log.Fatal(err)
			}
		}
		time.Sleep(time.Millisecond)
	}
	_ = l.Close()
	return c
}

func ints(list string) (out []int) {
	for f := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(f)
		if err != nil || n < 1 || n > 64<<20 {
			log.Fatalf("size %q; allowed are 1 to 64 MiB in bytes", f)
		}
		out = append(out, n)
	}
	return out
}

// swap exchanges bytes with the other process.
func swap(r io.Reader, w io.Writer, mine []byte) []byte {
	if _, err := fmt.Fprintln(w, hex.EncodeToString(mine)); err != nil {
		log.Fatal(err)
	}
	var line string
	if _, err := fmt.Fscanln(r, &line); err != nil {
		log.Fatal(err)
	}
	b, err := hex.DecodeString(line)
	if err != nil {
		log.Fatal(err)
	}
	return b
}

func connectBare(r io.Reader, w io.Writer) link {
	var f bare
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	addr := string(swap(r, w, []byte(l.Addr().String())))
	for range *lanes {
		var c net.Conn
		if *child {
			c, err = l.Accept()
		} else {
			c, err = net.Dial("tcp", addr)
		}
		if err != nil {
			log.Fatal(err)
		}
		raw, err := c.(*net.TCPConn).SyscallConn()
		if err != nil {
			log.Fatal(err)
		}
		err = raw.Control(func(fd uintptr) {
			n, e := unix.Dup(int(fd))
			if e != nil {
				log.Fatal(e)
			}
			f = append(f, C.int(n))
		})
		if err != nil {
			log.Fatal(err)
		}
		_ = c.Close()
	}
	return f
}
