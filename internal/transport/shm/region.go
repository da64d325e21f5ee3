package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// Header of a region, little-endian:
//
//	 0  magic    u64  "mcastshm"
//	 8  version  u32
//	12  size     u32
//	16  job      u64
//	24  chunk    u32
//	28  slots    u32
//	32  stream   u32
//	40  output   u64
//	48  message  u32
const (
	magic   = 0x6d6873747361636d
	version = 2

	headBytes = 56
)

var errHeader = errors.New("shm: not a region of this job")

// Region is one rank's view of the memory that the ranks of a host share.
type Region struct {
	lay  Layout
	rank int
	mem  []byte

	gather  *Gather
	streams [sets]*Streams // nil: there are none
	output  []byte         // until somebody takes it

	mu   sync.Mutex // guards mem's life against Wake
	open int        // fabrics not yet closed
}

// Gather returns the region's multicast fabric, always the same one.
func (w *Region) Gather() *Gather { return w.gather }

// Streams returns the region's streams for reductions, always the same ones.
func (w *Region) Streams() *Streams { return w.streams[reductions] }

// Messages returns the region's streams for messages from rank to rank, always the same ones, or nil.
func (w *Region) Messages() *Streams { return w.streams[messages] }

// Output hands over the memory for results, if there is any, and what gives it back: that may be
// called after Close, and is up to the first caller.
func (w *Region) Output() (mem []byte, free func() error) {
	mem, w.output = w.output, nil
	return mem, func() error { return unmap(mem) }
}

// Close closes all fabrics. The memory goes when all are closed, that for results if nobody has taken it.
func (w *Region) Close() error {
	mem, free := w.Output()
	err := w.gather.Close()
	for _, s := range w.streams {
		if s != nil {
			err = errors.Join(err, s.Close())
		}
	}
	if mem != nil {
		err = errors.Join(err, free())
	}
	return err
}

func unmap(mem []byte) error {
	if mem == nil {
		return nil
	}
	return unix.Munmap(mem)
}

// create returns the descriptor of a new region, with all its memory reserved.
func create(job uint64, lay Layout) (fd int, err error) {
	bytes := lay.Bytes()
	if err := affordable(bytes); err != nil {
		return -1, err
	}
	fd, err = unix.MemfdCreate("torch-mcast", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, fmt.Errorf("shm: memfd_create: %w", err)
	}
	if err := prepare(fd, job, lay); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// prepare reserves the memory of a new region and writes its header.
func prepare(fd int, job uint64, lay Layout) error {
	bytes := lay.Bytes()
	// Reserving now turns a lack of memory into an error here rather than a
	// SIGBUS at the first touch.
	var err error = unix.EINTR
	for errors.Is(err, unix.EINTR) {
		err = unix.Fallocate(fd, 0, 0, int64(bytes))
	}
	if err != nil {
		return fmt.Errorf("shm: cannot reserve a region of %d bytes for %d ranks (check the limits on memory and on file "+
			"size): %w", bytes, lay.Size, err)
	}
	if lay.Output > 0 {
		if err := unix.Ftruncate(fd, int64(bytes+lay.Output)); err != nil {
			return fmt.Errorf("shm: cannot make room for %d bytes of results (check the limit on file size): %w", lay.Output,
				err)
		}
	}
	head := make([]byte, headBytes)
	binary.LittleEndian.PutUint64(head[0:], magic)
	binary.LittleEndian.PutUint32(head[8:], version)
	binary.LittleEndian.PutUint32(head[12:], uint32(lay.Size))
	binary.LittleEndian.PutUint64(head[16:], job)
	binary.LittleEndian.PutUint32(head[24:], uint32(lay.Chunk))
	binary.LittleEndian.PutUint32(head[28:], uint32(lay.Slots))
	binary.LittleEndian.PutUint32(head[32:], uint32(lay.Stream))
	binary.LittleEndian.PutUint64(head[40:], uint64(lay.Output))
	binary.LittleEndian.PutUint32(head[48:], uint32(lay.Message))
	if _, err = unix.Pwrite(fd, head, 0); err != nil {
		return fmt.Errorf("shm: write the region's header: %w", err)
	}
	// Nobody can take memory away below the others' feet.
	if _, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS,
		unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		return fmt.Errorf("shm: seal the region: %w", err)
	}
	return nil
}

// open maps the region behind fd, after a look at whether it is one.
func open(fd int, job uint64, rank, size int) (*Region, error) {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || seals&unix.F_SEAL_SHRINK == 0 {
		return nil, fmt.Errorf("%w: its size is not sealed", errHeader)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("shm: fstat: %w", err)
	}
	if st.Size < page {
		return nil, fmt.Errorf("%w: it has %d bytes", errHeader, st.Size)
	}
	head := make([]byte, headBytes)
	if _, err := unix.Pread(fd, head, 0); err != nil {
		return nil, fmt.Errorf("shm: read the region's header: %w", err)
	}
	lay, err := readHeader(head, job, int(st.Size))
	switch {
	case err != nil:
		return nil, err
	case lay.Size != size:
		return nil, fmt.Errorf("%w: it is for %d ranks, this rank expects %d", errHeader, lay.Size, size)
	}
	mem, err := mapped(fd, 0, lay.Bytes())
	if err != nil {
		return nil, err
	}
	var output []byte
	if lay.Output > 0 {
		if output, err = mapped(fd, int64(lay.Bytes()), lay.Output); err != nil {
			return nil, errors.Join(err, unix.Munmap(mem))
		}
	}
	w := &Region{lay: lay, rank: rank, mem: mem, output: output, open: 1}
	w.name()
	w.gather = newGather(w)
	for set, p := range lay.places().streams {
		if p.ring > 0 {
			w.streams[set] = newStreams(w, set)
			w.open++
		}
	}
	return w, nil
}

// mapped maps a part of a region.
func mapped(fd int, from int64, bytes int) ([]byte, error) {
	mem, err := unix.Mmap(fd, from, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("shm: map %d bytes of a region: %w", bytes, err)
	}
	// A child must not keep the memory after the ranks are gone.
	if err := unix.Madvise(mem, unix.MADV_DONTFORK); err != nil {
		return nil, errors.Join(fmt.Errorf("shm: madvise: %w", err), unix.Munmap(mem))
	}
	return mem, nil
}

// readHeader returns the layout of a region of so many bytes.
func readHeader(mem []byte, job uint64, bytes int) (lay Layout, err error) {
	if got := binary.LittleEndian.Uint64(mem[0:]); got != magic {
		return lay, fmt.Errorf("%w: magic %#x", errHeader, got)
	}
	if got := binary.LittleEndian.Uint32(mem[8:]); got != version {
		return lay, fmt.Errorf("%w: version %d, this rank has %d", errHeader, got, version)
	}
	if got := binary.LittleEndian.Uint64(mem[16:]); got != job {
		return lay, fmt.Errorf("%w: job %#x, this rank is in %#x", errHeader, got, job)
	}
	lay = Layout{
		Size:   int(binary.LittleEndian.Uint32(mem[12:])),
		Chunk:  int(binary.LittleEndian.Uint32(mem[24:])),
		Slots:  int(binary.LittleEndian.Uint32(mem[28:])),
		Stream: int(binary.LittleEndian.Uint32(mem[32:])),
		Output: int(binary.LittleEndian.Uint64(mem[40:])), Message: int(binary.LittleEndian.Uint32(mem[48:])),
	}
	if err := lay.Check(); err != nil {
		return lay, fmt.Errorf("%w: %w", errHeader, err)
	}
	if want := lay.Bytes() + lay.Output; want != bytes {
		return lay, fmt.Errorf("%w: it has %d bytes, its header says %d", errHeader, bytes, want)
	}
	return lay, nil
}

// release unmaps the memory when the last fabric is closed.
func (w *Region) release(closed *bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if *closed {
		return nil
	}
	*closed = true
	w.open--
	if w.open > 0 {
		return nil
	}
	return unix.Munmap(w.mem)
}

// wake wakes one of the region's fabrics, unless it is closed.
func (w *Region) wake(s *sleeper, closed *bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !*closed {
		s.wakeUp()
	}
}
