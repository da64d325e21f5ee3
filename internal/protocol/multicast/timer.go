package multicast

// timer is the cutoff timer of an operation: after so long a silence missing chunks count as lost (Khalilov et al.,
// SC24, III-C).
type timer struct {
	cutoff Time // when the silence is too long, 0: not armed; never where nothing is missing
	tries  uint // how often it was, since the last chunk
	// passed is when a cutoff passed that is not yet known to be right or wrong, 0: there is none.
	passed Time
	silent bool // a cutoff has passed: the time that the operation takes may say nothing about the rate
}

// arm sets the next cutoff.
func (t *timer) arm(at Time) { t.cutoff = at }

// stop disarms it.
func (t *timer) stop() { t.cutoff = 0 }

// hasten makes the cutoff, if there is one, not later than a moment.
func (t *timer) hasten(at Time) { t.cutoff = min(t.cutoff, at) }

// armed reports whether there is a cutoff.
func (t *timer) armed() bool { return t.cutoff != 0 }

// expired reports whether the cutoff has passed.
func (t *timer) expired(now Time) bool { return t.armed() && t.cutoff <= now }

// expire notes that chunks were asked for since the cutoff has passed.
func (t *timer) expire(now Time) {
	t.silent = true
	if t.passed == 0 {
		t.passed = now
	}
	t.tries++
}

// settle returns when the cutoff passed that is now known to be right or wrong, and false if there is none. It is
// returned once.
func (t *timer) settle() (passed Time, ok bool) {
	passed, t.passed = t.passed, 0
	return passed, passed != 0
}
