package packing

// Work bounds the work that problems may take together. It counts steps, not time, so equal
// problems with equal bounds have equal solutions. A problem may use half of what is left. If
// that is not enough, its solution is rough. A nil Work is no bound.
type Work struct{ left int }

// NewWork returns a bound of that many steps. A step takes about a nanosecond.
func NewWork(steps int) *Work { return &Work{left: steps} }

// half returns the bound for one problem.
func (w *Work) half() *Work {
	if w == nil {
		return nil
	}
	return &Work{left: w.left / 2}
}

// take takes what a problem has used of its half.
func (w *Work) take(half *Work) {
	if w != nil {
		w.left -= w.left/2 - half.left
	}
}

// spend notes steps.
func (w *Work) spend(steps int) {
	if w != nil {
		w.left -= steps
	}
}

// spent reports whether no step is left.
func (w *Work) spent() bool { return w != nil && w.left <= 0 }
