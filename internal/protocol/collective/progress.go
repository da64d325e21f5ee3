package collective

// Progress is how far the oldest reduction in flight has come at a rank.
type Progress struct {
	Moving  bool // something of the result is there
	Whole   bool // the whole result is there or, if it is not for this rank, all input was sent
	Sending bool // this rank still has something to send for it
}
