package collective

// Progress is how far the oldest reduction in flight has come at a rank.
type Progress struct {
	Moving  bool // something of the result is there
	Whole   bool // all of it is, or of what is not for this rank all was sent
	Sending bool // this rank still has something of it to send
}
