package policy

import (
	"slices"

	"github.com/faas-infer/faas-infer/scaling"
)

// Tuner keeps what a system considers for one function while its load changes: it
// is chosen anew only where the load has changed by a good deal, so that a load
// that moves to and fro does not have instances exchanged, and asking costs
// nothing else.
type Tuner struct {
	system   System
	function Function
	times    Times
	rate     float64
	list     []scaling.Candidate
	tuned    bool
}

// Tuner returns a tuner for a function with the given mean times.
func (s System) Tuner(f Function, t Times) *Tuner { return &Tuner{system: s, function: f, times: t} }

// retune is how many times as high, or as low, the load must have become.
const retune = 1.25

// Candidates is [System.Candidates] for the load of now, as far as it has
// changed. The slice is the tuner's and must not be changed; it tells whether it
// is another than last time.
func (u *Tuner) Candidates(rate float64) (list []scaling.Candidate, changed bool) {
	if u.tuned && rate <= u.rate*retune && rate*retune >= u.rate {
		return u.list, false
	}
	next := u.system.Candidates(u.function, rate, u.times)
	changed = !u.tuned || !slices.Equal(next, u.list)
	u.rate, u.tuned = rate, true
	if changed {
		u.list = next
	}
	return u.list, changed
}
