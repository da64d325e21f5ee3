package trace

// rows are those of one title. Spans that are in flight together have rows of their own: those of one row must lie one
// in another or apart.
type rows struct {
	w     *writer
	title string
	free  []int64 // from when on a row is, by row
}

func (w *writer) rows(title string) *rows { return &rows{w: w, title: title} }

// place returns the row for a span, which begins no earlier than the one before.
func (r *rows) place(from, to int64) (row int) {
	for row < len(r.free) && r.free[row] > from {
		row++
	}
	if row == len(r.free) {
		r.free = append(r.free, 0)
		r.w.name("thread_name", r.w.row+row, r.title)
		r.w.sort(r.w.row + row)
	}
	r.free[row] = to
	return r.w.row + row
}

// close has the rows behind it begin.
func (r *rows) close() { r.w.row += len(r.free) }
