package worker

import (
	"encoding/binary"
	"fmt"
	"os"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// operations are what a round is made of. Each fills its buffers anew, so that what an earlier one
// left behind shows, and returns how many elements of its result are wrong.
var operations = map[string]func(r *rank, bytes int) (wrong uint64, err error){
	"allgather":     (*rank).allgather,
	"reducescatter": (*rank).reduceScatter,
	"allreduce":     (*rank).allreduce,
	"broadcast":     (*rank).broadcast,
	"barrier":       func(r *rank, _ int) (uint64, error) { return 0, r.group.Barrier() },
}

// opError says which operation failed.
type opError struct {
	op  string
	err error
}

func (e *opError) Error() string { return e.err.Error() }

// pause is between rounds, or else ranks that share a core would do nothing but rounds.
const pause = time.Millisecond

// rounds does the rounds of the plan.
func (r *rank) rounds() *opError {
	for ; ; r.round++ {
		for _, op := range r.Operations {
			bytes := r.Bytes
			if r.act(op) {
				bytes += 4
			}
			if err := r.timed(op, func() error {
				wrong, err := operations[op](r, bytes)
				r.wrong += wrong
				return err
			}); err != nil {
				return err
			}
		}
		on, err := r.goOn()
		if err != nil || !on {
			return err
		}
		r.sayRound()
		time.Sleep(pause)
	}
}

func (r *rank) timed(op string, f func() error) *opError {
	begin := time.Now()
	if err := f(); err != nil {
		return &opError{op, err}
	}
	r.longest = max(r.longest, time.Since(begin))
	return nil
}

// goOn has rank 0 tell all ranks whether another round follows.
func (r *rank) goOn() (on bool, failed *opError) {
	if r.Rounds > 0 {
		return r.round+1 < r.Rounds, nil
	}
	buf := make([]byte, 4)
	if r.rank == 0 {
		if _, err := os.Stat(r.Stop); err != nil {
			buf[0] = 1
		}
	}
	failed = r.timed("broadcast", func() error { return r.group.Broadcast(buf, 0) })
	return buf[0] == 1, failed
}

// base is element i of round n as rank 0 has it; rank r has r+1 times as much, modulo 2^32, so that
// a sum is known without adding.
func base(n, i int) uint32 { return uint32(n)*7919 + uint32(i)*2654435761 + 1 } // modulo 2^32

// fill writes what a rank has from element first on, times factor.
func fill(b []byte, n, first int, factor uint32) {
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], factor*base(n, first+i/4))
	}
}

// check returns how many elements of b are not what fill writes.
func check(b []byte, n, first int, factor uint32) (wrong uint64) {
	for i := 0; i < len(b); i += 4 {
		if binary.NativeEndian.Uint32(b[i:]) != factor*base(n, first+i/4) {
			wrong++
		}
	}
	return wrong
}

func (r *rank) factor() uint32 { return uint32(r.rank) + 1 }
func (r *rank) sum() uint32    { return uint32(r.size) * uint32(r.size+1) / 2 }

func (r *rank) allgather(bytes int) (wrong uint64, err error) {
	send, recv := make([]byte, bytes), make([]byte, bytes*r.size)
	fill(send, r.round, 0, r.factor())
	if err := r.group.Allgather(send, recv); err != nil {
		return 0, err
	}
	for other := range r.size {
		wrong += check(recv[other*bytes:(other+1)*bytes], r.round, 0, uint32(other)+1)
	}
	return wrong, nil
}

func (r *rank) reduceScatter(bytes int) (uint64, error) {
	send, recv := make([]byte, bytes*r.size), make([]byte, bytes)
	fill(send, r.round, 0, r.factor())
	if err := r.group.ReduceScatter(send, recv, reduce.U32, reduce.Sum, 1); err != nil {
		return 0, err
	}
	return check(recv, r.round, r.rank*bytes/4, r.sum()), nil
}

func (r *rank) allreduce(bytes int) (uint64, error) {
	send, recv := make([]byte, bytes), make([]byte, bytes)
	fill(send, r.round, 0, r.factor())
	if err := r.group.Allreduce(send, recv, reduce.U32, reduce.Sum, 1); err != nil {
		return 0, err
	}
	return check(recv, r.round, 0, r.sum()), nil
}

func (r *rank) broadcast(bytes int) (uint64, error) {
	root := (r.round + r.astray) % r.size
	r.astray = 0 // once
	buf := make([]byte, bytes)
	if r.rank == root {
		fill(buf, r.round, 0, r.factor())
	}
	if err := r.group.Broadcast(buf, root); err != nil {
		return 0, fmt.Errorf("root %d: %w", root, err)
	}
	return check(buf, r.round, 0, uint32(root)+1), nil
}
