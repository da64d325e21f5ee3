package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/group"
)

// background broadcasts in a group in the background, of the same processes, until end is called; by
// every rank, in a moment when all have done as much.
func (b *bench) background(ctx context.Context, g Contender) (end func() error, err error) {
	ctx, cancel := b.withinJoinTimeout(ctx)
	defer cancel()
	settings := b.settings
	settings.Class = "background"
	e, err := group.Open(group.Options{Rank: b.rank, Size: b.ranks, Settings: settings})
	if err != nil {
		return nil, err
	}
	blobs, err := b.exchange(g, e.Blob())
	if err != nil {
		e.Close()
		return nil, err
	}
	back, err := e.Join(ctx, blobs)
	if err != nil {
		return nil, err
	}
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() { stopped <- b.broadcasts(back, stop) }()
	return func() error {
		close(stop)
		return errors.Join(<-stopped, back.Close())
	}, nil
}

// exchange tells all ranks what each has to say.
func (b *bench) exchange(g Contender, mine []byte) (all [][]byte, err error) {
	const room = 4 + group.MaxBlob // its length, and a blob
	send, recv := make([]byte, room), make([]byte, room*b.ranks)
	binary.BigEndian.PutUint32(send, uint32(copy(send[4:], mine)))
	if err := g.Allgather(send, recv); err != nil {
		return nil, err
	}
	for r := range b.ranks {
		from := recv[r*room:][:room]
		all = append(all, from[4:][:binary.BigEndian.Uint32(from)])
	}
	return all, nil
}

// broadcasts goes on until rank 0 is to stop: its last Broadcast says so.
func (b *bench) broadcasts(back *group.Group, stop <-chan struct{}) error {
	buf := make([]byte, b.checkpoint)
	for round := byte(1); ; round++ {
		last := false
		if b.rank == 0 {
			select {
			case <-stop:
				last = true
			default:
			}
			for i := range buf {
				buf[i] = round + byte(i>>12)
			}
			if buf[0] = 0; last {
				buf[0] = 1
			}
		}
		if err := back.Broadcast(buf, 0); err != nil {
			return err
		}
		for i := 1; i < len(buf); i++ {
			if buf[i] != round+byte(i>>12) {
				return fmt.Errorf("byte %d of Broadcast %d of the background is wrong", i, round)
			}
		}
		if buf[0] == 1 {
			return nil
		}
	}
}
