package staging

import "sync/atomic"

// flight is a piece between its call and its results.
type flight struct {
	copier *Copier
	work   *Work
	plan   *Plan
	piece  *Piece
	first  bool // of its operation
	turn   turn

	// Of the ring: where it is staged, and the word to write sequence to when its collective has ended.
	memory   []byte
	word     *uint32
	sequence uint32
}

// filled says that the input is in the memory. The driver calls it.
func (f *flight) filled() {
	if f.first {
		f.work.began()
	}
	f.copier.out.Add(uint64(f.piece.Out.bytes()))
	f.copier.turns.opened(&f.turn)
}

// begin begins the collective.
func (f *flight) begin(failed error) (again bool) {
	if failed != nil {
		f.end(failed)
		return false
	}
	return f.copier.begin(func() (Operation, error) { return f.plan.Start(f.memory, f.piece.Shard) }, f.end)
}

// end is called once the results are there, or will not be. The stream that waits goes on.
func (f *flight) end(err error) {
	if err != nil {
		f.work.fail(err)
		corrupt(f.memory)
		f.copier.lost.Do(func() { f.copier.cfg.Lost(f.plan.Name, err) })
	}
	f.copier.in.Add(uint64(f.piece.in()))
	atomic.StoreUint32(f.word, f.sequence)
}

// corrupt overwrites memory that holds no result, so that nobody takes it for one: floats become NaN,
// integers -1 or the largest.
func corrupt(memory []byte) {
	for i := range memory {
		memory[i] = 0xFF
	}
}
